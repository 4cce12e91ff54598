"""Prints the folder to give to lm-eval's --include_path."""

from maskwise.lm_eval.tasks import FOLDER

print(FOLDER)
