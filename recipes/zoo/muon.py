"""Muon: momentum made orthogonal, for the weight matrices inside the layers (Jordan et al. 2024).

The update of a matrix has all its singular values near 1, so no direction of the weights waits for its gradient to
grow. Updates are scaled to the size Adam's have (0.2 root mean square, Liu et al. 2025), so learning rate and weight
decay mean the same for both. Matrices of one shape are treated together: a dozen kernels a step, not a thousand.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonal(x: Tensor) -> Tensor:
    """Pulls the singular values of each matrix towards 1 by five Newton-Schulz steps. [n, r, c] -> [n, r, c]."""
    tall = x.shape[1] > x.shape[2]
    y = x.mT if tall else x
    y = y / (y.norm(dim=(1, 2), keepdim=True) + 1e-7)
    y = y.to(torch.bfloat16) if y.is_cuda else y
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = y @ y.mT
        y = a * y + (b * gram + c * gram @ gram) @ y
    y = y.mT if tall else y
    return y.to(x.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.1):
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for matrix in matrices:
            by_shape[matrix.shape].append(matrix)
        groups = [{"params": alike} for alike in by_shape.values()]
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            matrices = group["params"]
            state = self.state[matrices[0]]
            gradient = torch.stack([matrix.grad for matrix in matrices])
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(gradient)
            state["momentum"].lerp_(gradient, 1 - group["momentum"])
            update = orthogonal(gradient.lerp_(state["momentum"], group["momentum"]))
            size = 0.2 * max(update.shape[1:]) ** 0.5
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(matrices, list(update.unbind()), alpha=-group["lr"] * size)
