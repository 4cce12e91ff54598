"""Prints the folder to give to lm-eval's --include_path."""

from maskwise.tasks.lm_eval import FOLDER

print(FOLDER)
