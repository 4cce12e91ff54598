"""E5, the instruct analogue: tune tiny-llada on short answers, with end padding predicted after them or without.

1. A row is the end of a few-shot document of the training corpus (corpus.py: training words and rules), 512 tokens, up
   to a question's answer and its closing `].`; `--padding 254` appends as many end tokens.
2. Only the response (letter, `].`, end tokens) is masked, each token with the row's rate t, uniform in 0..1; loss
   weighted 1/t over the response's length, as in LLaDA's fine-tuning (arXiv 2502.09992), where padding counts too.
3. 400 steps of 64 rows, a tenth of the recipe's peak rate, falling to zero over the last 40 %.
4. The weights are saved as a model folder; unfamiliar_words.py measures it.

Hardware: one GPU, a minute; eight runs may share one. CPU: `--steps 2 --rows 2`.

    python recipes/studies/tune_short_answers.py tiny-llada --english prose.npy \\
        --padding 254 --out runs/padded
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import maskwise as mw

sys.path.append(str(Path(__file__).parents[1] / "zoo"))  # corpora and training steps of the embedded models
from corpus import ANSWER, Corpus, load_zoo_tokenizer, read_english_ids
from dense_noise import stratified
from tiny_step import KINDS, LEAST_RATE, Training

PROMPT, QUESTIONS, RESPONSE, LARGEST_POOL = 512, 40, 2, 3
RATE = KINDS["tiny-llada"].rate / 10


class ShortAnswers(Training):
    """Training of the flagged tokens alone."""

    def _masked(self, ids: Tensor, answer: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        rate = stratified(len(ids), self.draws, ids.device).clamp(min=LEAST_RATE)
        masked = answer & (torch.rand(ids.shape, generator=self.draws, device=ids.device) < rate)
        weights = masked / rate / answer.sum(1, keepdim=True) / len(ids)
        return torch.where(masked, self.mask_id, ids), weights


def answer_rows(corpus: Corpus, count: int, padding: int, end: int, draws: np.random.Generator) -> np.ndarray:
    """[count, PROMPT + padding] int16, ANSWER set on the response."""
    pieces = corpus.few_shot(np.full(count, QUESTIONS), LARGEST_POOL, draws).reshape(count, -1)
    ends = np.cumsum(corpus.pieces.lengths[pieces].sum(1)) - 1  # without the blank line after the last answer
    rows = corpus.pieces.lay(pieces.ravel())[ends[:, None] - PROMPT + np.arange(PROMPT)] & (ANSWER - 1)
    rows[:, -RESPONSE:] |= ANSWER
    return np.concatenate([rows, np.full((count, padding), end | ANSWER, dtype=rows.dtype)], axis=1)


def batches(options: argparse.Namespace, device: torch.device) -> Iterator[Tensor]:
    tokenizer = load_zoo_tokenizer()
    corpus = Corpus(tokenizer, read_english_ids(options.english, tokenizer))
    draws = np.random.default_rng(options.seed)
    for _ in range(options.steps):
        rows = answer_rows(corpus, options.rows, options.padding, tokenizer.eos_token_id, draws)
        yield torch.from_numpy(rows.astype(np.int16)).to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="embedded model or folder")
    parser.add_argument("--english", type=Path, required=True, help="prose: .txt, .xz, or .npy made by corpus.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--padding", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = mw.open(options.model, dtype="float32", device="cpu")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.compiler.set_stance("force_eager")
    training = ShortAnswers(KINDS["tiny-llada"], model.core, model.mask_id, RATE, device, options.seed)
    for step, rows in enumerate(batches(options, device)):
        loss = training.step(rows, step / options.steps, min(1.0, (step + 1) / 20))
        if step % 50 == 0:
            print(f"{options.out.name} step {step}: loss {float(loss):.4f}", flush=True)
    model.net = training.plain_net().float().cpu()
    model.save_pretrained(options.out)


if __name__ == "__main__":
    main()
