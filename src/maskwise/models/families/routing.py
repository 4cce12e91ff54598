"""MoE router: top-k experts per token and their weights."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Router(nn.Module):
    """Chooses the experts of largest softmax probability. Its class is not nn.Linear, so adapters leave it alone.
    Published names: `weight` [experts, width]."""

    def __init__(self, width: int, experts: int, at_once: int, normalised: bool = False) -> None:
        super().__init__()
        self.at_once, self.normalised = at_once, normalised
        self.weight = nn.Parameter(torch.empty(experts, width))
        self.kernel = False  # use the kernel; set before a pass by the experts

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, d] -> the weights of the chosen experts in x's type, and their indices, [T, k] each."""
        share, chosen = self.choose(F.linear(x, self.weight).float(), None, 1, 1, self.normalised, 1.0)
        return share.to(x.dtype), chosen

    def choose(
        self, logits: Tensor, bias: Tensor | None, groups: int, kept: int, normalised: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        """`choice`, by the kernel where no gradient is needed."""
        given = logits, bias, self.at_once, groups, kept, normalised, scale
        if not self.kernel or torch.is_grad_enabled():
            return choice(*given)
        from maskwise.kernels.moe import choose_experts

        return choose_experts(*given)


def choice(
    logits: Tensor, bias: Tensor | None, count: int, groups: int, kept: int, normalised: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """float32 logits [T, E] -> weights and indices of the chosen experts, [T, count] each, best first.

    Scores are softmax probabilities, or sigmoids where there is a bias [E], which takes part in the choice and not in
    the weights. Experts are chosen within the `kept` best groups, ranked by the sum of their two best scores.
    """
    scores = logits.softmax(dim=-1) if bias is None else logits.sigmoid()
    biased = scores if bias is None else scores + bias
    if kept < groups:
        by_group = biased.unflatten(-1, (groups, -1))  # [T, groups, experts]
        best = among_the_best(sum_of_two_best(by_group), kept)
        biased = by_group.masked_fill(~best[..., None], float("-inf")).flatten(1)
    chosen = biased.topk(count, dim=-1)[1]
    share = scores.gather(1, chosen)
    if normalised:
        share = share / (share.sum(dim=-1, keepdim=True) + 1e-20)
    return share * scale, chosen


# For few numbers: torch's topk takes 0.2 ms for 20,000 rows; these fuse with the operations around them.


def sum_of_two_best(values: Tensor) -> Tensor:
    """Sum of the two largest values: [.., n] -> [..]."""
    best, where = values.max(dim=-1, keepdim=True)
    others = values.masked_fill(torch.arange(values.shape[-1], device=values.device) == where, float("-inf"))
    return best[..., 0] + others.amax(dim=-1)


def among_the_best(values: Tensor, count: int) -> Tensor:
    """[T, n] -> [T, n], True at the `count` largest of each row, ties to the left."""
    place = torch.arange(values.shape[1], device=values.device)
    mine, other = values[:, :, None], values[:, None, :]
    ahead = (other > mine) | ((other == mine) & (place < place[:, None]))
    return ahead.sum(dim=-1) < count
