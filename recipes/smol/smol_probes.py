"""Does a model of natural text show what the paper's models show? smol-diffusion, its teacher, and tuning it.

1. The questions are the exams of smol_diffusion.py, which a model of 135 M parameters can answer (it cannot answer the
   16 tasks of `maskwise diagnose`, which ask for letters): few-shot tasks in words with 10 examples alone, among 40
   pairs of another task, before them and after them; recall; the next token.
2. Each is asked with 2 to 200 masks from the answer's place on, and with 2 masks and 198 full stops. The teacher, which
   is autoregressive, is asked once. Intervals of 95 % are normal; differences are paired by question.
3. `--tune` writes pairs from the rules of smol_data.py (none of the exams') and this project's text, tunes as
   `maskwise tune --anchored` does, and evaluates the tuned model next to the other.
4. `--attribution N` measures instead, for N questions per exam, how much the answer depends on masks, on the nearest 64
   other tokens and on farther ones: attribution (a token's gradient norm over the largest) and attention (means over
   layers and heads). `--fewer-bits` evaluates the model with its weights in fp8 instead.

Hardware: one H200; 148 s with --fewer-bits.

    python recipes/smol/smol_probes.py --exams words/function_vectors --other gsm8k_test.jsonl --state scratch/smol \\
        --out OUT --tune
"""

import argparse
import json
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1] / "zoo"))  # exams, corpora and training steps of the embedded models

import maskwise as mw
from exams import Exams
from maskwise.models.model import Model
from maskwise.probes.answers.attention_shares import GROUPS, watch
from maskwise.probes.answers.gradients import embedding_gradients, group_sums, mask_groups
from maskwise.probes.text import load_text
from maskwise.support.files import replace_file
from maskwise.tasks.prompts import Encoded, Prompt, opened
from smol_data import FORMATS, RULES, words_to_train_on
from smol_diffusion import REAL, TOY, make_exams, open_base
from task_accuracy import answers

CONDITIONS = ("2 masks", "20 masks", "60 masks", "200 masks", "198 full stops")
AUTOREGRESSIVE = "no masks"
EXAMPLES = (8, 40)  # of a few-shot pair
PAIRS = {"few-shot": 900, "prose": 300}
PROMPT_WORDS, ANSWER_WORDS = (40, 300), 12
TUNING: dict[str, Any] = {"steps": 300, "batch": 8, "learning_rate": 5e-4, "max_masks": 240, "context": 1024}

ATTRIBUTED, ATTRIBUTED_MASKS, NEAR = ("words alone", "words among others", "next token"), (20, 200), 64

Attributions = dict[str, list[dict[str, float]]]  # exam and masks, a dict for each question
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


def few_shot_pair(draw: random.Random, words: dict[str, list[str]]) -> dict[str, str]:
    """A document of one rule and form, cut before its last answer."""
    rule, form = RULES[draw.choice(sorted(RULES))], draw.choice(FORMATS)
    shown = "".join(form.format(*rule(draw, words)) for _ in range(draw.randint(*EXAMPLES)))
    given, answer = rule(draw, words)
    before, after = form.format(given, "\0").split("\0")
    return {"prompt": shown + before, "answer": answer + after}


def prose_pair(draw: random.Random, text: list[str]) -> dict[str, str]:
    length = draw.randint(*PROMPT_WORDS)
    start = draw.randrange(len(text) - length - ANSWER_WORDS)
    stop = start + length
    return {"prompt": " ".join(text[start:stop]), "answer": " " + " ".join(text[stop : stop + ANSWER_WORDS])}


def pairs(seed: int = 0) -> list[dict[str, str]]:
    draw, words, text = random.Random(f"smol pairs {seed}"), words_to_train_on(), load_text().split()
    made = [few_shot_pair(draw, words) for _ in range(PAIRS["few-shot"])]
    made += [prose_pair(draw, text) for _ in range(PAIRS["prose"])]
    draw.shuffle(made)
    return made


# Attribution and attention


def attributions(model: Model, exams: Exams, count: int) -> Attributions:
    """Of some questions of each exam with few and many masks: attribution and attention of masks, near and far."""
    found: Attributions = {}
    for exam in ATTRIBUTED:
        for masks in ATTRIBUTED_MASKS:
            questions = exams[exam][:: max(1, len(exams[exam]) // count)][:count]
            found[f"{exam}|{masks} masks"] = [
                attribution_of(model, opened(one, model.mask_id, masks)) for one in questions
            ]
    return found


def attribution_of(model: Model, prompt: Prompt) -> dict[str, float]:
    _, (norms, _) = embedding_gradients(model, [prompt])
    sums, sizes = group_sums(norms, [mask_groups(model, prompt, NEAR)])
    means = (sums / sizes.clamp(min=1))[0].tolist()
    shares = watch(model, [prompt], NEAR)[0].evidence
    assert shares is not None
    return {
        f"attribution, {group}": value for group, value in zip(GROUPS, means, strict=False) if group != "answer"
    } | {f"attention, {group}": float(np.mean(shares[group])) for group in GROUPS}


def attribution_table(found: Attributions) -> str:
    names = [f"{what}, {group}" for what in ("attribution", "attention") for group in GROUPS[1:]]
    rows = [["exam", *names], ["---"] * (1 + len(names))]
    for exam, answered in found.items():
        columns = [np.array([one.get(name, 0.0) for one in answered]) for name in names]
        rows.append([exam.replace("|", ", "), *(f"{one.mean():.3f} +- {half_width(one):.3f}" for one in columns)])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


# Weights in fewer bits


def compared(found: dict[str, Answers]) -> str:
    """Accuracy as it is, and with each kind of weights its paired change, and that of nats."""
    kinds = list(found)[1:]
    heads = ["exam", "%", *(f"{kind}, {what}" for kind in kinds for what in ("change", "answers that change", "nats"))]
    rows = [heads, ["---"] * len(heads)]
    for exam, plain in found["plain"].items():
        right, nats = np.array(plain["right"], float), np.array(plain["nats"])
        cells = [exam.replace("|", ", "), percent(right)]
        for kind in kinds:
            other = np.array(found[kind][exam]["right"], float)
            moved = np.array(found[kind][exam]["nats"]) - nats
            cells += [percent(other - right), f"{100 * np.mean(other != right):.1f}", in_nats(moved)]
        rows.append(cells)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


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


def main(given: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smol-diffusion")
    parser.add_argument("--adapter", help="to put on the model")
    parser.add_argument("--exams", type=Path, required=True, help="folder of the function-vectors data")
    parser.add_argument("--other", type=Path, required=True, help="a text that is not trained on")
    parser.add_argument("--state", type=Path, required=True, help="folder of smol_diffusion.py, or an empty one")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument(
        "--attribution",
        type=int,
        metavar="N",
        help="attribution and attention of N questions an exam, and nothing else",
    )
    parser.add_argument("--fewer-bits", action="store_true", help="with weights in fp8, and nothing else")
    parser.add_argument("--toy", action="store_true", help="two questions a task, two steps")
    options = parser.parse_args(given)
    options.out.mkdir(parents=True, exist_ok=True)
    options.state.mkdir(parents=True, exist_ok=True)
    scale = TOY if options.toy else REAL
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    teacher = open_base(scale, options.state, True, device, wide=False)
    exams = make_exams(teacher.tokenizer, options.exams, options.other, scale)
    opening = partial(mw.open, options.model, "bfloat16" if device.type == "cuda" else "float32", device)
    if options.fewer_bits:
        kinds = {"plain": None, "fp8": "fp8"}
        asked = {
            kind: examine(opening(adapter=options.adapter, weights=weights), exams) for kind, weights in kinds.items()
        }
        replace_file(options.out / "fewer_bits.json", [json.dumps(asked)])
        print(compared(asked), flush=True)
        return asked
    model = opening(adapter=options.adapter)
    if options.attribution:
        attributed = attributions(model.eval(), exams, options.attribution)
        replace_file(options.out / "attribution.json", [json.dumps(attributed)])
        print(attribution_table(attributed), flush=True)
        return attributed
    results = {"teacher": examine(teacher, exams, causal=True), "before": examine(model, exams)}
    if options.tune:
        settings = TUNING | ({"steps": 2, "batch": 2, "warmup": 0} if options.toy else {})
        mw.tune(model, pairs()[: 20 if options.toy else None], options.out / "tuned", preset="quick", **settings)
        results["tuned"] = examine(model.eval(), exams)
    replace_file(options.out / "probes.json", [json.dumps(results)])
    print(table(results), flush=True)
    return results


if __name__ == "__main__":
    main()
