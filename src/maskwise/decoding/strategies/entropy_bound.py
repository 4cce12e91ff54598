"""The EB-Sampler."""

from maskwise.decoding.strategies.choosing import passing, ranks
from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State
from maskwise.decoding.strategies.strategy import Parameter, Strategy


def entropy_bound(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The longest prefix in order of entropy whose entropies, without the largest, sum to at most gamma."""
    from torch.nn.functional import pad

    score = rows.certainty()
    rank = ranks(score, rows)
    entropy = (-score).masked_fill(~rows.open, float("inf"))
    ordered = entropy.new_empty(entropy.shape).scatter_(-1, rank, entropy)
    before = pad(ordered.cumsum(dim=-1)[..., :-1], (1, 0))
    return passing(before.gather(-1, rank) <= parameters["gamma"], rank, rows)


STRATEGIES = (
    Strategy(
        "entropy-bound",
        "tokens in order of entropy, up to a bound of their sum",
        entropy_bound,
        parameters=(Parameter("gamma", 0.1),),
        paper="Ben-Hamu et al., Accelerated Sampling from Masked Diffusion Models via Entropy Bounded Unmasking, "
        "arXiv 2505.24857",
    ),
)
