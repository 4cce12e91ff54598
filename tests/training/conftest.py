from helpers.tuning import checkpoint, dream_checkpoint, pairs_file

__all__ = ["checkpoint", "dream_checkpoint", "pairs_file"]
