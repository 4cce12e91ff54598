"""`import maskwise.models.auto` registers all our classes with transformers' Auto classes.

AutoModelForCausalLM.from_pretrained then opens a LLaDA or Dream checkpoint without remote code.
"""

from maskwise.models import MODEL_CLASSES
from maskwise.support.imports import imported

for path in MODEL_CLASSES.values():
    imported(path)
