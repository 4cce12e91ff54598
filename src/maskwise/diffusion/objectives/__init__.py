"""The training objectives: one file each, and one line here."""

from maskwise.diffusion.objective import Objective
from maskwise.diffusion.objectives.blockwise import BLOCKWISE
from maskwise.diffusion.objectives.masked_nelbo import NELBO
from maskwise.diffusion.objectives.soft_mask import SOFT_MASK
from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean

OBJECTIVES: tuple[Objective, ...] = (NELBO, BLOCKWISE, SOFT_MASK)


def find_objective(objective: str | Objective) -> Objective:
    """The objective of this name; an Objective value is returned as it is."""
    if isinstance(objective, Objective):
        return objective
    by_name = {known.name: known for known in OBJECTIVES}
    if (found := by_name.get(str(objective))) is None:
        raise UserError(f"unknown objective {objective!r}{did_you_mean(str(objective), by_name)}")
    return found
