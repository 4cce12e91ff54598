"""What training means: schedules, noise, objectives, and the fused head + cross-entropy + total variation."""

from maskwise.diffusion.fused import LinearCeTv, ViewScores, compare_views, linear_ce, linear_ce_tv
from maskwise.diffusion.fused_kl import linear_kl
from maskwise.diffusion.grid import blockwise_grid, nelbo_grid, stratified
from maskwise.diffusion.mask_agnostic import (
    Draw,
    Views,
    anchored_call,
    draw_noise,
    mask_agnostic,
    mask_agnostic_call,
    pad_visibly,
)
from maskwise.diffusion.objectives import (
    Call,
    Noised,
    Taught,
    block_diffusion,
    blockwise,
    last_to_first,
    nelbo,
    nelbo_call,
    soft_masks,
    taught_rows,
    teach,
)
from maskwise.diffusion.process import absorb, clean_distribution, reverse_step
from maskwise.diffusion.schedules import Cosine, Geometric, Linear, Polynomial, Schedule, step_weight
from maskwise.diffusion.softmask import SoftShape

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
    "SoftShape",
    "Taught",
    "ViewScores",
    "Views",
    "absorb",
    "anchored_call",
    "block_diffusion",
    "blockwise",
    "blockwise_grid",
    "clean_distribution",
    "compare_views",
    "draw_noise",
    "last_to_first",
    "linear_ce",
    "linear_ce_tv",
    "linear_kl",
    "mask_agnostic",
    "mask_agnostic_call",
    "nelbo",
    "nelbo_call",
    "nelbo_grid",
    "pad_visibly",
    "reverse_step",
    "soft_masks",
    "step_weight",
    "stratified",
    "taught_rows",
    "teach",
]
