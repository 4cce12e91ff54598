"""Does a model of natural text show what the paper's models show? smol-diffusion and its teacher.

1. The questions are the exams of smol_diffusion.py, which a model of 135 M parameters can answer (it cannot answer the
   16 tasks of `maskwise diagnose`, which ask for letters): few-shot tasks in words with 10 examples alone, among 40
   pairs of another task, before them and after them; recall; the next token.
2. Each is asked with 2 to 200 masks from the answer's place on, and with 2 masks and 198 full stops. The teacher, which
   is autoregressive, is asked once. Intervals of 95 % are normal; differences are paired by question.

Hardware: one H200.

    python recipes/smol/smol_probes.py --exams words/function_vectors --other gsm8k_test.jsonl --state scratch/smol \\
        --out OUT
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1] / "zoo"))  # exams, corpora and training steps of the embedded models

import maskwise as mw
from exams import Exams
from maskwise.models.model import Model
from maskwise.support.files import replace_file
from maskwise.tasks.prompts import Encoded, Prompt, opened
from smol_diffusion import REAL, TOY, make_exams, open_base
from task_accuracy import answers

CONDITIONS = ("2 masks", "20 masks", "60 masks", "200 masks", "198 full stops")
AUTOREGRESSIVE = "no masks"
Answers = dict[str, dict[str, list[float]]]  # exam and condition, {"right": [n], "nats": [n]}


def asked_with(question: Encoded, condition: str, model: Model, stop: int) -> Prompt:
    count, kind = condition.split(" ", 1)
    if kind == "masks":
        return opened(question, model.mask_id, int(count))
    prompt = opened(question, model.mask_id, 2)
    return replace(prompt, ids=(*prompt.ids, *[stop] * int(count)))


def examine(model: Model, exams: Exams, causal: bool = False) -> Answers:
    """All exams under all conditions, or read autoregressively, without masks."""
    stop = model.tokenizer(".", add_special_tokens=False)["input_ids"][0]
    found = {}
    for name, questions in exams.items():
        for condition in (AUTOREGRESSIVE,) if causal else CONDITIONS:
            prompts = [opened(one, None, 0) if causal else asked_with(one, condition, model, stop) for one in questions]
            right, nats = answers(model.core, prompts, model.shift or causal, causal)
            found[f"{name}|{condition}"] = {"right": right.tolist(), "nats": nats.tolist()}
    return found


# Tables


def percent(values: np.ndarray) -> str:
    return f"{100 * values.mean():.1f} +- {100 * half_width(values):.1f}"


def in_nats(values: np.ndarray) -> str:
    return f"{values.mean():.2f} +- {half_width(values):.2f}"


def half_width(values: np.ndarray) -> float:
    return float(1.96 * values.std() / len(values) ** 0.5)


def row(found: Answers, exam: str) -> list[str]:
    """Accuracy with 2 masks and its paired change under each other condition, then the same of nats with 200 masks."""
    if f"{exam}|{AUTOREGRESSIVE}" in found:
        only = found[f"{exam}|{AUTOREGRESSIVE}"]
        return [percent(np.array(only["right"])), *[""] * (len(CONDITIONS) - 1), in_nats(np.array(only["nats"])), ""]
    right, nats = ({one: np.array(found[f"{exam}|{one}"][field]) for one in CONDITIONS} for field in ("right", "nats"))
    first, *others = CONDITIONS
    changes = [percent(right[one] - right[first]) for one in others]
    return [percent(right[first]), *changes, in_nats(nats[first]), in_nats(nats["200 masks"] - nats[first])]


def table(results: dict[str, Answers]) -> str:
    heads = [
        "exam",
        "model",
        f"{CONDITIONS[0]}, %",
        *(f"change with {one}" for one in CONDITIONS[1:]),
        "nats, 2 masks",
        "change with 200 masks",
    ]
    exams = dict.fromkeys(key.split("|")[0] for found in results.values() for key in found)
    rows = [[exam, model, *row(found, exam)] for exam in exams for model, found in results.items()]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, ["---"] * len(heads), *rows])


def main(given: list[str] | None = None) -> dict[str, Answers]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smol-diffusion")
    parser.add_argument("--adapter", help="to put on the model")
    parser.add_argument("--exams", type=Path, required=True, help="folder of the function-vectors data")
    parser.add_argument("--other", type=Path, required=True, help="a text that is not trained on")
    parser.add_argument("--state", type=Path, required=True, help="folder of smol_diffusion.py, or an empty one")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--toy", action="store_true", help="two questions a task")
    options = parser.parse_args(given)
    options.out.mkdir(parents=True, exist_ok=True)
    options.state.mkdir(parents=True, exist_ok=True)
    scale = TOY if options.toy else REAL
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    teacher = open_base(scale, options.state, True, device, wide=False)
    exams = make_exams(teacher.tokenizer, options.exams, options.other, scale)
    model = mw.open(options.model, "bfloat16" if device.type == "cuda" else "float32", device, adapter=options.adapter)
    results = {"teacher": examine(teacher, exams, causal=True), "before": examine(model, exams)}
    replace_file(options.out / "probes.json", [json.dumps(results)])
    print(table(results), flush=True)
    return results


if __name__ == "__main__":
    main()
