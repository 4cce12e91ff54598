"""Training objectives: schedules, noise, losses, and the fused head + cross-entropy + total variation.

Names are imported on first use, so that objectives and schedules can be listed without torch.
"""

from typing import TYPE_CHECKING

__all__ = ["Cosine", "Geometric", "Linear", "Polynomial", "Schedule", "step_weight"]
__all__ += ["Draw", "Noised", "Noising", "absorb", "block_diffusion", "blockwise", "draw_noise", "nelbo"]
__all__ += ["Call", "MicroBatch", "Objective", "SoftMask", "cross_entropy", "nelbo_call", "soft_masks"]
__all__ += ["Views", "anchored_call", "mask_agnostic", "mask_agnostic_call", "pad_visibly"]
__all__ += ["LinearCeTv", "ViewScores", "compare_views", "linear_ce", "linear_ce_tv", "linear_kl"]

if TYPE_CHECKING:
    from maskwise.diffusion.fused import LinearCeTv, ViewScores, compare_views, linear_ce, linear_ce_tv
    from maskwise.diffusion.fused_kl import linear_kl
    from maskwise.diffusion.noised import Noised
    from maskwise.diffusion.objective import MicroBatch, Noising, Objective, cross_entropy
    from maskwise.diffusion.objectives.blockwise import block_diffusion, blockwise
    from maskwise.diffusion.objectives.masked_nelbo import absorb, nelbo
    from maskwise.diffusion.objectives.soft_mask import SoftMask, soft_masks
    from maskwise.diffusion.schedules import Cosine, Geometric, Linear, Polynomial, Schedule, step_weight
    from maskwise.diffusion.training_call import Call, nelbo_call
    from maskwise.diffusion.two_views import (
        Draw,
        Views,
        anchored_call,
        draw_noise,
        mask_agnostic,
        mask_agnostic_call,
        pad_visibly,
    )
else:  # a type checker that saw __getattr__ would take any name for a public one
    _NAMES = {
        "fused": "LinearCeTv ViewScores compare_views linear_ce linear_ce_tv",
        "fused_kl": "linear_kl",
        "noised": "Noised",
        "objective": "MicroBatch Noising Objective cross_entropy",
        "objectives.blockwise": "block_diffusion blockwise",
        "objectives.masked_nelbo": "absorb nelbo",
        "objectives.soft_mask": "SoftMask soft_masks",
        "schedules": "Cosine Geometric Linear Polynomial Schedule step_weight",
        "training_call": "Call nelbo_call",
        "two_views": "Draw Views anchored_call draw_noise mask_agnostic mask_agnostic_call pad_visibly",
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value
