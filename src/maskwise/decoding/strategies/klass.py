"""KLASS: tokens whose prediction has become stable."""

from maskwise.decoding.strategies.choosing import log, ranks
from maskwise.decoding.strategies.state import Choice, Memory, Parameters, Rows, State
from maskwise.decoding.strategies.strategy import Parameter, Strategy


def klass(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """Rows with probability > tau whose prediction changed by a KL below eps in two steps, else the best row."""
    import torch

    log_p = rows.logits.log_softmax(dim=-1)
    if state.memory is None:
        calm = torch.zeros_like(rows.tokens)
    else:
        p = log_p.exp()
        moved = torch.where(p > 0, p * (log_p - state.memory.log_p), 0.0).sum(dim=-1)
        calm = torch.where(moved < parameters["eps"], state.memory.calm + 1, 0)
    score = rows.confidence()
    stable = (score > log(parameters["tau"])) & (calm >= 2) & rows.open
    stable = stable if rows.held is None else stable & ~rows.held
    first = (ranks(score, rows) == 0) & rows.open
    return Choice(torch.where(stable.any(dim=-1, keepdim=True), stable, first), Memory(log_p, calm))


STRATEGIES = (
    Strategy(
        "klass",
        "probable tokens whose prediction no longer changes",
        klass,
        parameters=(Parameter("tau", 0.9, 1, "conf_threshold"), Parameter("eps", 0.01, 1, "kl_threshold")),
        paper="Kim et al., KLASS: KL-Guided Fast Inference in Masked Diffusion Models, arXiv 2511.05664",
    ),
)
