"""Training of block diffusion models: the size of their blocks, and which losses fit them."""

from pathlib import Path

from maskwise.diffusion.objectives import OBJECTIVES, find_objective
from maskwise.models.checkpoints.configuration import configured_block, read_family
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.training.training_settings import SharedSettings, TrainSettings


def refuse_block_models(model: str | Path | Model, settings: SharedSettings) -> None:
    """Refuse losses that do not fit a block diffusion model, by config.json alone, before any weight is read.

    It predicts a block from clean blocks before it, while other losses noise a whole answer or document. The views of
    the mask-agnostic loss would differ in the last block of an answer at most.
    """
    name, block = (model.name or model.kind) if isinstance(model, Model) else str(model), block_of(model)
    if block is None:
        return
    fitting = " or ".join(objective.name for objective in OBJECTIVES if objective.block_models)
    if not isinstance(settings, TrainSettings):
        raise UserError(
            f"{name} is a block diffusion model: an answer sees no mask after its block of {block}, so that the "
            f"views of the mask-agnostic loss would hardly differ; use train --objective {fitting}"
        )
    remedies = (
        (not find_objective(settings.objective).block_models, f"use --objective {fitting}"),
        (settings.block not in (None, block), f"leave --block out, or say {block}"),
    )
    if needed := [remedy for wrong, remedy in remedies if wrong]:
        raise UserError(
            f"{name} is a block diffusion model and learns a block of {block} tokens from clean blocks before it: "
            f"{', '.join(needed)}"
        )


def block_of(model: str | Path | Model) -> int | None:
    """Tokens of a block of a block diffusion model, by config.json alone; None for any other model."""
    if isinstance(model, Model):
        return model.block
    folder = locate_checkpoint(str(model))[0]
    return configured_block(folder, read_family(folder))
