"""What training means: schedules, noise, objectives, and the fused head + cross-entropy + total variation."""

from maskwise.diffusion.fused import LinearCeTv, ViewScores, compare_views, linear_ce, linear_ce_tv
from maskwise.diffusion.objectives import (
    Call,
    Draw,
    Noised,
    Views,
    blockwise,
    draw_noise,
    last_to_first,
    mask_agnostic,
    mask_agnostic_call,
    nelbo,
    nelbo_call,
    pad_visibly,
)
from maskwise.diffusion.process import absorb, clean_distribution, reverse_step
from maskwise.diffusion.schedules import Cosine, Geometric, Linear, Polynomial, Schedule, step_weight

__all__ = [
    "Call",
    "Cosine",
    "Draw",
    "Geometric",
    "Linear",
    "LinearCeTv",
    "Noised",
    "Polynomial",
    "Schedule",
    "ViewScores",
    "Views",
    "absorb",
    "blockwise",
    "clean_distribution",
    "compare_views",
    "draw_noise",
    "last_to_first",
    "linear_ce",
    "linear_ce_tv",
    "mask_agnostic",
    "mask_agnostic_call",
    "nelbo",
    "nelbo_call",
    "pad_visibly",
    "reverse_step",
    "step_weight",
]
