"""Logits in bf16: ours against a peer's, and each against float32, on the same random weights.

    python -m benchmarks.logits                     # LLaDA-8B's shape on CUDA (about 60 GiB, a minute), a toy on CPU
    python -m benchmarks.logits --peers FOLDER      # LLaDA's own modelling file, of the checkout FOLDER/dllm

1. Every row of some prompts is asked of our class in bf16 and of the peer in bf16. Without --peers the peer is
   benchmarks/plain.py, a re-implementation of the published modelling code that shares only the weights with ours.
2. The weights are then held in float32, and the plain code gives the reference. Our class must agree with it.
3. Printed: the relative difference |a - b| / |b| over all logits (without the mask token's) of ours against the peer's,
   of each against float32, and the share of rows whose arg-max is float32's.

A bf16 difference between two implementations is rounding if it is no larger than that of each from float32.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from msgspec import Struct, to_builtins
from torch import Tensor

from benchmarks import peer_code, plain
from benchmarks.measure import Bench
from benchmarks.shapes import LLADA, TOY_LLADA, make_model
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.model import Model

PUBLISHED = "LLaDA's own modelling file, as dllm carries it"
PLAIN = "benchmarks/plain.py, a re-implementation of the published modelling code"
FLOAT32_AGREES = 1e-3  # relative, of our class and the plain code in float32


class Logits(Struct, frozen=True):
    """What the script prints; shares and relative differences."""

    model: str
    peer: str
    rows: int
    ours_peer: float
    ours_float32: float
    peer_float32: float
    same_token_ours: float
    same_token_peer: float
    in_float32: float  # our class against the plain code, both in float32


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def same_token(found: Tensor, wanted: Tensor) -> float:
    return float((found.argmax(-1) == wanted.argmax(-1)).float().mean())


def prompts_of(model: Model, count: int, length: int) -> Tensor:
    """Random tokens, a quarter of them masks; [count, length]."""
    assert model.mask_id is not None
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.core.config.vocab_size, (count, length), generator=draws)
    ids[torch.rand(ids.shape, generator=draws) < 0.25] = model.mask_id
    return ids


@torch.no_grad()
def ours(model: Model, ids: Tensor) -> Tensor:
    """[rows, V]"""
    rows = [list(range(ids.shape[1]))] * len(ids)
    return torch.cat(model.predict(ids.tolist(), rows))


@torch.no_grad()
def of_all(logits: Callable[[Tensor], Tensor], model: Model, ids: Tensor) -> Tensor:
    """One prompt at a time, as the published code is called; [rows, V] float32 on the CPU."""
    return torch.cat([logits(one[None].to(model.device))[0].float().cpu() for one in ids])


def without_mask(logits: Tensor, mask_id: int | None) -> Tensor:
    keep = torch.ones(logits.shape[-1], dtype=torch.bool)
    keep[mask_id] = False
    return logits[:, keep]


def compared(bench: Bench, peers: Path | None = None, count: int = 8, length: int = 256) -> Logits:
    model = make_model(bench, "llada")
    if not bench.full:
        model = as_model(model.core.to(torch.bfloat16), model.tokenizer, model.name)
    ids = prompts_of(model, count, length)
    theirs: Callable[[Tensor], Tensor] = lambda batch: plain.logits(model, batch)  # noqa: E731
    if peers is not None:
        peer_code.put_back()
        shape = LLADA if bench.full else TOY_LLADA | {"vocab_size": model.core.config.vocab_size}
        net = peer_code.llada_net(peer_code.llada(peers)[2], shape, model.core.state_dict())
        theirs = lambda batch: net(batch).logits  # noqa: E731
    of_ours, of_peer = ours(model, ids), of_all(theirs, model, ids)
    wide = as_model(model.core.float(), model.tokenizer, model.name)
    exact = of_all(lambda batch: plain.logits(wide, batch), wide, ids)
    first, second, reference, check = (
        without_mask(one, model.mask_id) for one in (of_ours, of_peer, exact, ours(wide, ids))
    )
    found = Logits(
        model=model.name,
        peer=PLAIN if peers is None else PUBLISHED,
        rows=len(reference),
        ours_peer=relative(first, second),
        ours_float32=relative(first, reference),
        peer_float32=relative(second, reference),
        same_token_ours=same_token(first, reference),
        same_token_peer=same_token(second, reference),
        in_float32=relative(check, reference),
    )
    assert found.in_float32 < FLOAT32_AGREES, f"float32 logits differ by {found.in_float32:.1e}"
    return found


def table(found: Logits) -> str:
    return (
        f"{found.model}, bf16, random weights, {found.rows} rows; the peer is {found.peer}\n"
        "| bf16 | relative difference of the logits | arg-max equal to float32's |\n|---|---|---|\n"
        f"| ours against the peer's | {found.ours_peer:.4f} | |\n"
        f"| ours against float32 | {found.ours_float32:.4f} | {100 * found.same_token_ours:.1f} % of rows |\n"
        f"| the peer's against float32 | {found.peer_float32:.4f} | {100 * found.same_token_peer:.1f} % of rows |\n"
        f"in float32 ours and the plain code differ by {found.in_float32:.1e}"
    )


def main() -> int:
    options = argparse.ArgumentParser(prog="benchmarks.logits", description=__doc__.splitlines()[0])
    options.add_argument("--peers", type=Path, help="a folder of checkouts; else the plain code is the peer")
    options.add_argument("--prompts", type=int, default=8)
    options.add_argument("--length", type=int, default=256, help="tokens per prompt")
    options.add_argument("--toy", action="store_true", help="a toy on the CPU, also where there is CUDA")
    options.add_argument("--out", type=Path, help="the figures as JSON")
    given = options.parse_args()
    cuda = torch.cuda.is_available() and not given.toy
    bench = Bench(torch.device("cuda" if cuda else "cpu"), cuda, 1.0)
    found = compared(bench, given.peers, given.prompts, given.length)
    if given.out is not None:
        given.out.write_text(json.dumps(to_builtins(found)) + "\n", encoding="utf-8")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
