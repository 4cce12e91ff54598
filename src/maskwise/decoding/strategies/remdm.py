"""ReMDM: committed tokens may be masked again."""

from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State
from maskwise.decoding.strategies.strategy import Parameter, Strategy


def remdm_times(steps: int, parameters: Parameters) -> list[float]:
    """Equidistant times from 1 to 0."""
    import torch

    return torch.linspace(1, 0, steps + 1, dtype=torch.float32).tolist()


def remdm(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """A mask is resolved with (a_s - (1 - sigma) a_t) / (1 - a_t), a committed row masked again with sigma.
    a_t = 1 - t; sigma = min(eta, (1 - a_s) / a_t), so nothing is masked again in the last step."""
    import torch

    assert state.draws is not None and state.time is not None and state.after is not None
    kept_now, kept_after = 1 - state.time[:, None], 1 - state.after[:, None]
    largest = torch.where(kept_now > 0, (1 - kept_after) / kept_now, 1.0)
    sigma = largest.clamp(max=min(parameters["eta"], 1.0))
    resolve = (kept_after - (1 - sigma) * kept_now) / (1 - kept_now)
    return Choice(state.draws < torch.where(rows.open, resolve, sigma))


STRATEGIES = (
    Strategy(
        "remdm",
        "each mask at random; committed tokens may be masked again",
        remdm,
        time_function=remdm_times,
        parameters=(Parameter("eta", 0.02, 1),),
        paper="Wang et al., Remasking Discrete Diffusion Models with Inference-Time Scaling, arXiv 2503.00307",
        draws=True,
    ),
)
