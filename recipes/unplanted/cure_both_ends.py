"""Does tuning raise accuracy and likelihood with 200 masks, without a loss with 2? One tuning, judged at both ends.

1. `maskwise tune --preset quick` (anchored KL: with masks appended the tuned model is pulled to the untuned model's
   answer without them) with other pairs and strengths (SETTINGS), and two controls: CE + TV as in the paper, and the
   same without total variation (cross-entropy alone), both at the preset's learning rate. `--setting none`: no tuning.
2. Pairs: those of the preset; with them few-shot documents of listed words, or of forty kinds that no set has (no right
   answers are needed: the target is the model's own answer without masks).
3. Questions (unfamiliar_words.py), with 2 and 200 masks: *half*, a listed word among words of a set's kind; *sets*,
   words of new kinds alone; listed words with held-out questions; the mixed questions of the study of unfamiliar words.
   Settings are chosen on set I (`--choose`); set II confirms once.
4. OUT/NAME.npz has the answers [sources, questions, 3]: right, format, choice.

Hardware: one GPU, a minute a tuning; eight at a time. `--toy`: two steps, a few questions.

    python recipes/unplanted/cure_both_ends.py tiny-llada+distracted --setting quick --out OUT
    python recipes/unplanted/cure_both_ends.py --choose --out OUT
    python recipes/unplanted/cure_both_ends.py tiny-llada+distracted --setting CHOSEN --part II --seed 1 --out OUT
"""

import argparse
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("studies", "zoo")]  # questions and corpora

import maskwise as mw
from corpus import Corpus, load_zoo_tokenizer
from make_pairs import cut_before_last_answer
from maskwise.tasks.words import load_words
from maskwise.training.checked_settings import settings_from
from maskwise.training.data.pairs import read_pairs, tokenize_pairs
from maskwise.training.training_settings import PRESET_PAIRS, TuneSettings
from maskwise.training.tune import make_trainer
from maskwise.training.weights import make_trainable
from training_factorial import words_of
from unfamiliar_sets import load_sets
from unfamiliar_words import Source, Study, Tails, at, listed_sources, mixed_sources, run_study, set_sources

PAPER: dict[str, Any] = {"anchored": False, "held": 0.0, "alpha": 0.1, "mask_low": 0.2, "mask_high": 0.8}
LONGER: dict[str, Any] = {"steps": 1400, "batch": 4}
# Further pairs, and what differs from the preset.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "quick": ("", {}),
    "quick, longer": ("", LONGER),
    "listed": ("listed", LONGER),
    "listed, all maps": ("listed", {**LONGER, "targets": None}),
    "forty": ("forty", LONGER),
    "forty, all maps": ("forty", {**LONGER, "targets": None}),
    "both, all maps": ("both", {**LONGER, "targets": None, "held": 0.5}),
}
CONTROLS: dict[str, dict[str, Any]] = {"CE + TV": PAPER, "CE alone": {**PAPER, "beta": 0.0}}
DOCUMENTS, QUESTIONS_A_DOCUMENT = 1200, (5, 30)
KINDS = ("animal", "object", "verb", "adjective", "emotion")
LEAST_LOSS = 0.01  # a setting may lose less than so much with 2 masks


def documents(kind: str, count: int) -> list[dict[str, str]]:
    """Few-shot documents cut before the last answer; `both` takes half of each kind."""
    if kind == "both":
        return documents("listed", count // 2) + documents("forty", count - count // 2)
    words, largest = (load_words(), 3) if kind == "listed" else (words_of(1), 1)
    corpus = Corpus(load_zoo_tokenizer(), np.zeros(0, dtype=np.int16), words, largest)
    draws, chance = np.random.default_rng(0), random.Random(f"cure {kind}")
    sizes = [np.array([chance.randint(*QUESTIONS_A_DOCUMENT)]) for _ in range(count)]
    return [cut_before_last_answer(corpus.pieces.text(corpus.few_shot(n, largest, draws).ravel())) for n in sizes]


def pairs_file(kind: str, out: Path, count: int) -> Path:
    """The preset's pairs and further documents, shuffled."""
    if not kind:
        return PRESET_PAIRS["quick"]
    made = [json.dumps(one) for one in documents(kind, count)]
    lines = made + PRESET_PAIRS["quick"].read_text(encoding="utf-8").splitlines()
    random.Random(1).shuffle(lines)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return out


def settings_of(options: argparse.Namespace) -> tuple[str, TuneSettings]:
    """(further pairs, settings). A control has the pairs, steps and layers of `--like`."""
    control = CONTROLS.get(options.setting)
    kind, changes = SETTINGS[options.like if control else options.setting]
    changes = {**changes, **(control or {})}
    if options.toy:
        changes |= {"steps": 2, "batch": 2, "warmup": 0}
    made = replace(settings_from("quick", {}), **changes, seed=options.seed, save_every=10**6, eval_every=0, held_out=0)
    return kind, made


def tuned(options: argparse.Namespace, name: str) -> mw.Model:
    """The model after tuning, in memory."""
    model = mw.open(options.model, dtype="float32")
    if options.setting != "none":
        kind, settings = settings_of(options)
        file = pairs_file(kind, options.out / f"{name}.jsonl", 20 if options.toy else DOCUMENTS)
        pairs = list(tokenize_pairs(read_pairs(file), model, settings.context).kept)
        make_trainable(model, settings)
        make_trainer(model, pairs, settings, options.out / name, [], None).train()
    return model.eval()


def half_sources(part: str) -> tuple[Source, ...]:
    """A listed word of a trained kind among words of a kind of the set: 24 sources."""
    words, sources = load_words(), []
    for number, (kind, listed) in enumerate(
        (name, listed)
        for one in load_sets(part)
        for name, listed in ((one.target, one.targets), (one.other, one.others))
    ):
        known = KINDS[number % len(KINDS)]
        lists = (words[known], listed)
        sources.append(Source(f"{known} among {kind}", lists, lists))
    return tuple(sources)


def studies(part: str, questions: int) -> list[Study]:
    both = at(2, 200)
    made = [
        Study(f"half {part}", half_sources(part), both, questions),
        Study(f"sets {part}", set_sources(part, new=False), both, questions),
    ]
    if part == "II":
        return made
    return [
        *made,
        Study("listed", listed_sources(new=True), both, 2 * questions),
        Study("mixed both others", mixed_sources("both others"), both, questions // 2),
        Study("mixed target", mixed_sources("target"), both, questions // 2),
    ]


def measure(options: argparse.Namespace, name: str) -> None:
    model = tuned(options, name)
    torch.set_float32_matmul_precision("high")  # TF32, exact enough for weights stored in bf16
    tails, results = Tails(model.tokenizer), {}
    for part in options.part:
        for study in studies(part, 6 if options.toy else 100):
            study = replace(study, sources=study.sources[:2]) if options.toy else study
            for condition, found in run_study(model, study, tails).items():
                results[f"{study.name}|{condition}"] = found.astype(np.float16)
                right, form, choice = found.mean((0, 1))
                print(f"{name} {study.name}, {condition}: {right:.3f} {form:.3f} {choice:.3f}", flush=True)
    np.savez_compressed(options.out / f"{name}.npz", **results)


def file_name(options: argparse.Namespace) -> str:
    model = options.name or Path(options.model).name
    return f"{model} - {options.setting} - {options.seed}".replace("+", "_").replace(",", "").replace(" ", "_")


def choose(out: Path, model: str) -> str:
    """Of the settings that lose less than a point with 2 masks, the one with the highest accuracy with 200."""

    def ends(setting: str) -> tuple[float, float] | None:
        name = file_name(argparse.Namespace(model=model, name=None, setting=setting, seed=0))
        if not (out / f"{name}.npz").exists():
            return None
        with np.load(out / f"{name}.npz") as stored:
            few, many = (stored[f"half I|masks {k}"][..., 0].astype(float).mean() for k in (2, 200))
        return float(few), float(many)

    found = {setting: one for setting in ("none", *SETTINGS) if (one := ends(setting))}
    before = found.pop("none")[0]
    cheap = {setting: one for setting, one in found.items() if one[0] > before - LEAST_LOSS}
    return max(cheap or found, key=lambda setting: found[setting][1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="tiny-llada+distracted", help="embedded model or folder")
    parser.add_argument("--setting", default="quick", help=", ".join(("none", *SETTINGS, *CONTROLS)))
    parser.add_argument("--like", default="quick", help="the setting whose pairs and steps a control has")
    parser.add_argument("--part", nargs="+", choices=["I", "II"], default=["I"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", help="of the model in the results")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--choose", action="store_true", help="print the setting that the rule chooses")
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.choose:
        print(choose(options.out, options.model))
    else:
        measure(options, file_name(options))


if __name__ == "__main__":
    main()
