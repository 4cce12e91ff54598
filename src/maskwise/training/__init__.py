"""Training a model: the data file, the data set and collator, the trainer, checkpoints and evaluation."""
