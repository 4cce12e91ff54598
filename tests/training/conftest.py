from helpers.tuning import checkpoint, dream_checkpoint, pairs_file, text_file

__all__ = ["checkpoint", "dream_checkpoint", "pairs_file", "text_file"]
