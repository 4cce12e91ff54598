"""What the model interface promises, on this device: how far rounding moves a result, by kind of model and precision.

    python benchmarks/promises.py            # CUDA where there is one, else CPU; small random models, seconds

For each kind and dtype it prints the largest difference, relative to the largest logit, between a sequence alone and in
a batch, between asked rows and the class's own dense logits, and between a refreshed cache and none.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers.tiny import dream_net, llada_net, qwen_net
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.model import Model


def sequences(count: int = 9, longest: int = 200) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, longest, (count,), generator=generator).tolist()
    return [torch.randint(0, 250, (length,), generator=generator).tolist() for length in lengths]


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    finite = torch.isfinite(b)
    return float((a[finite].float() - b[finite].float()).abs().max() / b[finite].float().abs().max())


def batch_difference(model: Model, batch: list[list[int]], rows: list[list[int]]) -> float:
    together = model.predict(batch, rows)
    return max(relative(a, model.predict([i], [r])[0]) for i, r, a in zip(batch, rows, together, strict=True))


@torch.no_grad()
def dense_difference(model: Model, batch: list[list[int]], rows: list[list[int]]) -> float:
    worst = 0.0
    for ids, asked, ours in zip(batch, rows, model.predict(batch, rows), strict=True):
        dense = model.core(input_ids=torch.tensor([ids], device=model.device)).logits[0].float().cpu()
        dense = dense[[max(row - int(model.shift), 0) for row in asked]]
        if model.mask_id is not None:
            dense[:, model.mask_id] = -torch.inf
        worst = max(worst, relative(ours, dense))
    return worst


@torch.no_grad()
def cache_difference(model: Model, batch: list[list[int]]) -> float:
    packed = Batch.pack(batch, model.device)
    cache = model.new_cache([len(ids) for ids in batch])
    plain, filled = model.hidden(packed), model.hidden(packed, cache)
    span = Batch.spans([ids[1:] for ids in batch], [1] * len(batch), model.device)
    keep = packed.positions >= 1
    return max(relative(filled, plain), relative(model.hidden(span, cache), plain[keep]))


def gradient_is_whole(model: Model, batch: list[list[int]]) -> bool:
    packed = Batch.pack(batch, model.device)
    embeds = model.embed(packed.ids).detach().requires_grad_()
    given = Batch(None, embeds, packed.offsets, packed.starts, packed.longest)
    rows = model.flat_rows(packed, [[1]] * len(batch))
    model(given, rows)[:, 5].sum().backward()
    return bool(torch.isfinite(embeds.grad).all() and embeds.grad.norm() > 0)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{'kind':8}{'dtype':10}{'batch':>10}{'dense':>10}{'cache':>10}  gradient  (relative to the largest logit)")
    for make in (llada_net, dream_net, qwen_net):
        for dtype in (torch.float32, torch.bfloat16) if device == "cuda" else (torch.float32,):
            net = (
                make(vocab=256, width=256, layers=4, initializer_range=0.05)
                if make is not llada_net
                else make(vocab=256, width=256, layers=4, init_std=0.05)
            )
            model = as_model(net.to(device=device, dtype=dtype), None, make.__name__)
            batch = sequences()
            rows = [list(range(1, len(ids), 7)) for ids in batch]
            cached = "-" if model.causal else f"{cache_difference(model, batch):.1e}"
            print(
                f"{model.kind:8}{str(dtype)[6:]:10}{batch_difference(model, batch, rows):10.1e}"
                f"{dense_difference(model, batch, rows):10.1e}{cached:>10}  "
                f"{'whole' if gradient_is_whole(model, batch) else 'BROKEN'}"
            )


if __name__ == "__main__":
    main()
