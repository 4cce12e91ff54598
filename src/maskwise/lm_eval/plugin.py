"""How lm-evaluation-harness finds the model name `maskwise` once this package is installed.

Releases after 0.4.13 read the entry points of the group `lm_eval.models`, and ours is there. 0.4.13 itself looks
nowhere outside its own tree, and its command line gives no chance to import anything first. What does run is torch's
autoload of extensions (the entry points of `torch.backends`), which lm-eval triggers when it imports torch: `register`
is one of them. What fails there fails `import torch`, so it does nothing unless lm-eval of exactly that release is
used, whose registry we know. It imports nothing heavy, and TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns it off. In a program
that imports torch before lm_eval, import maskwise.lm_eval.model to the same effect.
"""

import sys

WITHOUT_ENTRY_POINTS = "0.4.13"
TARGET = "maskwise.lm_eval.model:MaskwiseLM"


def register() -> None:
    """Adds the name to lm-eval's registry, as a string that is imported when asked for."""
    harness = sys.modules.get("lm_eval")
    if harness is None or vars(harness).get("__version__") != WITHOUT_ENTRY_POINTS:
        return
    from lm_eval.api.registry import model_registry

    if "maskwise" not in model_registry:
        model_registry.register("maskwise", target=TARGET)
