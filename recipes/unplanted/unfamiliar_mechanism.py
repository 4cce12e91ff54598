"""By which path do masks change answers where an un-planted model loses accuracy? Attention to the masks is cut.

The questions are the mixed ones of unfamiliar_words.py with both wrong options unlisted, 50 for each of 20 pairs of
kinds. Of masks 3 to 200 attention is cut from the answer's row, from all other rows, or from both (which must equal two
masks); their keys are biased by minus the log of their number; their positions are made one (probe `mechanism`).

    python recipes/unplanted/unfamiliar_mechanism.py MODEL --out OUT      # one GPU: half a minute a model
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("studies", "zoo")]  # questions and corpora

import maskwise as mw
from maskwise.models.batch import passes
from maskwise.models.model import Model
from maskwise.probes.answers.changed_attention import answer_logits
from maskwise.probes.extra_tokens import CHANGES, ChangedPrompt, with_extra
from maskwise.tasks.episodes import LETTERS
from unfamiliar_words import TOKENS_A_PASS, Item, draw_texts, encode, mixed_sources

EXTRA = 198
QUESTIONS = 50


def prompts_of(items: list[Item], mask: int, change: str | None) -> list[ChangedPrompt]:
    """Two masks, and with a change 198 more, attended to as it says."""
    plain = [ChangedPrompt((*item.ids, mask, mask), len(item.ids), 0, 2) for item in items]
    if change is None:
        return plain
    return [with_extra(one, [len(one.ids)] * EXTRA, mask, True, change) for one in plain]


@torch.inference_mode()
def measure(model: Model, prompts: list[ChangedPrompt], answers: list[int]) -> np.ndarray:
    """[n, 3]: right or not, format and choice in nats, as unfamiliar_words.measure."""
    letters = [model.tokenizer(f"[{letter}].")["input_ids"][-2] for letter in LETTERS]
    found = []
    for first, last in passes([len(one.ids) for one in prompts], TOKENS_A_PASS[model.device.type] // 4):
        logp = answer_logits(model, prompts[first:last]).float().log_softmax(-1).cpu()
        right = torch.tensor(answers[first:last])
        of_letters = logp[:, letters]
        any_letter = of_letters.logsumexp(1)
        hit = logp.argmax(-1) == torch.tensor(letters)[right]
        choice = any_letter - of_letters.gather(1, right[:, None])[:, 0]
        found.append(torch.stack([hit.float(), -any_letter, choice], 1).numpy())
    return np.concatenate(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="embedded model or folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", help="name of the results; the model's unless given")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="a pair of kinds")
    parser.add_argument("--dtype", default="float32", help="bfloat16 uses varlen flash attention")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    model = mw.open(options.model, dtype=options.dtype)
    sources = mixed_sources("both others")
    drawn = [one for source in sources for one in draw_texts(source, options.questions, 5, 10, False, "asked")]
    items = encode(model.tokenizer, drawn)
    answers, results, name = [item.answer for item in items], {}, options.name or Path(options.model).name
    for change in (None, *CHANGES):
        found = measure(model, prompts_of(items, model.mask_id or 0, change), answers)
        results[change or "masks 2"] = found.reshape(len(sources), options.questions, 3)
        right, form, choice = found.mean(0)
        print(f"{name} mechanism, {change or 'masks 2'}: {right:.3f} {form:.3f} {choice:.3f}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / f"{name}.npz", **results)


if __name__ == "__main__":
    main()
