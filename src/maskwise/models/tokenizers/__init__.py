"""Tokenizers and chat templates of checkpoints, read within limits of time and memory."""
