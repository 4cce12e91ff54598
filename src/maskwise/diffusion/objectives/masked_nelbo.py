"""The NELBO of the absorbing process: each token masked with the probability of a random time."""

from typing import TYPE_CHECKING

from maskwise.diffusion.noised import Noised
from maskwise.diffusion.objective import Noising, Objective
from maskwise.diffusion.schedules import SCHEDULES, Linear, Schedule, step_weight

if TYPE_CHECKING:
    from torch import Generator, Tensor


def absorb(ids: "Tensor", keep: "Tensor | float", mask_id: int, generator: "Generator") -> "Tensor":
    """ids [n] with each token kept with probability `keep` (a number or [n]), otherwise [MASK]."""
    import torch

    draws = torch.rand(ids.shape, generator=generator, device=ids.device, dtype=torch.float64)
    return torch.where(draws < keep, ids, mask_id)


def nelbo(
    ids: "Tensor",
    mask_id: int,
    generator: "Generator",
    schedule: Schedule | None = None,
    start: int = 0,
    steps: int | None = None,
    places: "Tensor | None" = None,
    weighted: bool = True,
) -> Noised:
    """One draw of the NELBO of ids[start:] given ids[:start]: a time, its noise, and the schedule's weight.

    Continuous time by default; `steps` gives the process of that many steps. A draw may mask nothing: its loss is zero.
    places [p], in order: the positions that are noised, instead of all from `start` on; the others stay visible.
    Without `weighted` every masked token has weight 1, which is no bound on the likelihood.
    """
    import torch

    schedule = schedule or Linear()
    places = torch.arange(start, len(ids)) if places is None else places
    if steps is None:
        t = 1 - torch.rand((), generator=generator, dtype=torch.float64)  # in (0, 1]: the weight at 0 is infinite
        weight = schedule.weight(t)
    else:
        number = torch.randint(1, steps + 1, (), generator=generator).double()
        t = number / steps
        weight = steps * step_weight(schedule, (number - 1) / steps, t)
    noised = ids.clone()
    noised[places] = absorb(ids[places], float(schedule.alpha(t)), mask_id, generator)
    rows = (noised != ids).nonzero()[:, 0]
    return Noised(noised, rows, ids[rows], torch.full((len(rows),), float(weight) if weighted else 1.0))


def noise_by_schedule(ids: "Tensor", places: "Tensor | None", noising: Noising) -> Noised:
    """One draw of `nelbo` under the schedule of the run."""
    settings = noising.settings
    schedule = SCHEDULES[settings.schedule]
    return nelbo(ids, noising.mask_id, noising.generator, schedule, places=places, weighted=settings.weighted)


NELBO = Objective(
    name="nelbo",
    title="each token masked with a probability t of its document, weighted by the schedule",
    noise=noise_by_schedule,
    # With the linear schedule it is the objective of LLaDA (Nie et al., arXiv 2502.09992).
    paper="Sahoo et al., Simple and Effective Masked Diffusion Language Models, arXiv 2406.07524",
    takes=("schedule",),
)
