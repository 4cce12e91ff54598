"""asked: what models answer to the questions of every probe, sizes of `quick`, one point, one prompt per pass.

HOW is the one place to change when probes merge or conditions are renamed: it says how the package of today is asked
for what is stored under a name. Each stored probe is a run of its own.

A value is {"settings": of the run that was stored, for readers, "records": {key: line}, "fragile": [key]}. The line is
that of records.jsonl without its key; the argmax of a fragile one, whose two best tokens are less than MARGIN apart,
is not compared. Probes that decode have no one margin: weights changed by 1e-5 of themselves changed no answer.
"""

import functools
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

import maskwise as mw
from maskwise.runs.diagnose import diagnose
from maskwise.runs.run import QUESTION_ARGUMENTS, run_inputs

MARGIN = 1e-3  # in probability, between the two best tokens
DIGITS = 6  # of the confidence in a record
DEFAULTS = dict.fromkeys(QUESTION_ARGUMENTS) | {
    "seed": 0,
    "chat": False,
    "select_tasks": False,
    "one_context": True,  # of the paper's ten examples, as 0.2 asked
}
KEY = ("model", "probe", "task", "point", "condition")
OF_ARGMAX = {"predicted", "correct"}
OF_ARGMAX_IN_EVIDENCE = {"offset", "mode_common"}


def named(names: str, **renamed: str) -> dict[str, str]:
    """{stored name: name today} of entries of a condition; "_" stands for a space in `renamed`."""
    return {name: name for name in names.split()} | {new.replace("_", " "): old for new, old in renamed.items()}


@dataclass(frozen=True)
class How:
    """How the package is asked for a stored probe: the probe's name today, {stored name: name today} of the entries of
    its conditions, more arguments of `mw.diagnose`, the rows of a data set by its name, entries of the evidence that
    are not stored, and the entries of a condition that tell which part of a merged probe is stored so, `but` for
    conditions with one of these; parameters of the probe that `quick` has otherwise."""

    probe: str
    condition: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Callable[[], list[Any]]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    part: Mapping[str, Any] = field(default_factory=dict)
    but: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


def hotpotqa_rows() -> list[Any]:
    """The published form; one supporting fact answers each question. Both letters are right as often."""
    pairs = [("Arda", "Bessa"), ("Corin", "Dovel"), ("Emmer", "Fosse"), ("Gular", "Hesk"), ("Ilmen", "Jarva")]
    pairs += [("Kolm", "Lunde"), ("Morva", "Norby"), ("Orran", "Pyle")]
    rows = []
    for number, pair in enumerate(pairs):
        larger = pair[number // 2 % 2]
        rows.append(
            {
                "question": f"Which lake is larger, {pair[0]} or {pair[1]}?",
                "answer": larger,
                "type": "comparison",
                "supporting_facts": [["Lakes", 1]],
                "context": [["Lakes", ["Both are deep.", f"{larger} is the larger one."]]],
            }
        )
    return rows


def labelled_rows() -> list[Any]:
    good, bad = ("warm", "kind", "bright", "fine", "happy", "lovely"), ("cold", "dull", "sad", "poor", "dark", "grim")
    return [
        {"text": f"The day was {word} from start to end.", "label": label}
        for pair in zip(good, bad, strict=True)
        for word, label in zip(pair, ("good", "bad"), strict=True)
    ]


HOW: dict[str, How] = {
    "location": How("location", named("location relevant"), part={"question": "right", "masks": 0}),
    "question-position": How("location", named("question location relevant"), part={"masks": 0}),
    "recall": How("recall", named("question distance masks fillers")),
    "mask-count": How("mask-count", named("masks relevant")),
    "mask-count-relevant-10": How("mask-count", named("masks relevant"), {"relevant": 10}),  # one context for a task
    "mask-count-unfamiliar-words": How("mask-count", named("masks relevant"), {"words": "unfamiliar-1"}),
    "block-offset": How("block-offset", named("after offset relevant")),
    "filler": How(
        "filler",
        named("filler fillers format relevant"),
        parameters={"filler_counts": (), "after_two_masks": (".",), "mask_counts": (2, 200), "among": None},
    ),
    "context-length": How("context-length", named("distractors masks relevant")),
    "location-masks": How("location", named("location masks relevant"), part={"question": "right"}, but={"masks": 0}),
    "contrast": How("contrast", named("examples masks")),
    "natural-text": How("natural-text", named("after count")),
    "attribution": How("attribution", named("question"), part={"of": "examples"}),
    "mask-attribution": How("attribution", named("", extra_masks="extra masks"), part={"of": "masks"}),
    "attention": How("attribution", named("", extra_masks="extra masks"), part={"of": "attention"}),
    "mechanism": How("mechanism", named("masks fillers place attention")),
    "unmasking": How("steps", named("order masks relevant"), part={"steps": 40}),
    "few-steps": How("steps", named("steps masks relevant"), part={"order": "random"}, but={"steps": 40}),
    "shots-masks": How(
        "mask-count", named("shots", extra_masks="extra"), parameters={"mask_counts": (), "shots": (5, 25)}
    ),
    "hotpotqa": How("datasets", named("share"), data={"hotpotqa": hotpotqa_rows}),
    "points": How("points", named("order question examples share")),
    "labelled-text": How("datasets", named("share"), data={"days": labelled_rows}),
    "own-task": How("own-task", named("how masks"), parameters={"canvases": ()}),
    "nelbo": How("nelbo", named("draws")),
    "confidence": How("confidence", named("rule")),
    "trajectory": How("trajectory", named("rule tokens_per_step"), left_out=frozenset({"voted"})),
    "marginals": How("marginals", named("suffix distance")),
    "total-correlation": How("total-correlation", named("distance")),
    "order": How("order", named("rule")),
    "coherence": How("coherence", named("puzzle rule speed")),
    "templates": How("templates", named("questions template answer examples masks")),
}
# {stored probe: {pattern of keys or of entries of the evidence that are stored and no longer asked: why}}
TIMES_INPUT = {".*_times_input": "left out in 0.3: the paper's gradient norm is what is shown"}
LEFT_OUT: dict[str, dict[str, str]] = {
    "attribution": TIMES_INPUT,
    "mask-attribution": TIMES_INPUT,
    "confidence": {
        "(all_)?nll": "left out in 0.3: the best temperature",
        "(all_)?share": "left out in 0.3: over- and underconfidence by the share still masked",
        '.*"skill".*': "left out in 0.3: baseline answers decide which sources are pooled",
    },
    "trajectory": {"changed": "left out in 0.3: committed tokens that a later step masked or replaced"},
    "order": {
        "global4|local1|local4": "left out in 0.3: tau and AR-ness@1 say how close the order is to reading order"
    },
    "total-correlation": {"forth|back": "left out in 0.3: tc is their mean"},
    "coherence": {
        "tokens_per_pass|ideal_speed": "left out in 0.3: speeds are one, two and four tokens a step",
        "ideal": "left out in 0.3: closed forms are what perfect marginals reach",
        '.*"(threshold|factor|entropy-bound|klass)".*': "left out in 0.3: adaptive strategies have other speeds",
    },
    "mechanism": {
        '.*"fillers".*': "left out in 0.3: filler asks full stops",
        '.*"place": "(front|middle|scattered)".*': "left out in 0.3: masks stand at the end",
        '.*"one position".*': "left out in 0.3: biased keys tell their number from their places",
    },
}
RANDOM = "random LLaDA2"
SIX = ("mask-count", "location", "contrast", "recall", "attribution", "coherence")
PROBES_OF: dict[str, tuple[str, ...]] = {
    "tiny-llada": tuple(name for name in HOW if name != "block-offset"),  # for models with blocks
    "tiny-dream": SIX,
    "tiny-qwen": ("location", "contrast", "recall", "attribution"),  # no masks
    "tiny-llada+distracted": SIX,
    RANDOM: ("mask-count", "location", "contrast", "recall", "block-offset"),  # sees no token after its block
}


def entries() -> dict[str, Callable[[], Any]]:
    """{name of a stored entry: what gives its value by the package of today}."""
    found = {
        f"asked/{model}/{probe}".replace(" ", "-"): partial(asked, model, probe)
        for model, probes in PROBES_OF.items()
        for probe in probes
    }
    return found | {f"asked/{RANDOM}/weights".replace(" ", "-"): saved_weights}


def asked(model: str, probe: str) -> dict[str, Any]:
    how, (opened, margins) = HOW[probe], watched(model)
    with TemporaryDirectory() as place:
        folder, data = Path(place), {}
        for name, rows in how.data.items():
            data[name] = folder / f"{name}.json"
            data[name].write_text(json.dumps(rows()))
        options = {"probes": how.probe, "preset": "quick", "questions": 1, "data": data or None, **how.options}
        inputs = run_inputs(**DEFAULTS | options)
        settings, words = inputs.settings.changed(how.probe, **how.parameters), inputs.source.words
        out = folder / "run"
        diagnose(opened, settings, out, words, inputs.text, data=inputs.data, exact=True, tasks=inputs.tasks)
        lines = [json.loads(line) for line in (folder / "run" / "records.jsonl").read_text("utf-8").splitlines()]
    records: dict[str, Any] = {}
    fragile = []
    for line in lines:
        if how.part.items() - line["condition"].items() or how.but.items() & line["condition"].items():
            continue  # of another part
        for name in how.part:
            del line["condition"][name]
        key = stored_key(how, line)
        assert key not in records, key
        records[key] = {name: value for name, value in line.items() if name not in KEY}
        for name in how.left_out:
            records[key]["evidence"].pop(name, None)
        alike = (round(line["confidence"] + step * 10**-DIGITS, DIGITS) for step in (-1, 0, 1))
        if min(margins.get(one, 1.0) for one in alike) < MARGIN:  # a decoded text has no confidence, so no margin
            fragile.append(key)
    return {"settings": asdict(settings), "records": records, "fragile": fragile}


def stored_key(how: How, line: Mapping[str, Any]) -> str:
    """The task, the point and the condition, in the names that are stored."""
    given = {
        name: value for name, value in line["condition"].items() if (name, value) != ("relevant", 10)
    }  # as 0.2 did
    condition = {name: given[today] for name, today in how.condition.items() if today in given}
    assert len(condition) == len(given), f"{given}: not all of it has a stored name"
    return f"{line['task']} {line['point']} {json.dumps(condition, sort_keys=True)}"


def compared(value: Mapping[str, Any], fragile: Sequence[str]) -> dict[str, Any]:
    """The records of a value without the argmax of those with these keys."""
    records = {key: dict(line) for key, line in value["records"].items()}
    for key in fragile:
        line = records.get(key, {})
        evidence = {k: v for k, v in line.get("evidence", {}).items() if k not in OF_ARGMAX_IN_EVIDENCE}
        records[key] = {k: v for k, v in line.items() if k not in OF_ARGMAX} | {"evidence": evidence}
    return records


def of_today(name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored value without what is LEFT_OUT."""
    probe = name.split("/")[-1]
    kept = {key: dict(line) for key, line in value["records"].items() if not left_out(probe, key)}
    for line in kept.values():
        if evidence := {k: v for k, v in line.pop("evidence", {}).items() if not left_out(probe, k)}:
            line["evidence"] = evidence
    return {**value, "records": kept}


def left_out(probe: str, text: str) -> bool:
    return any(re.fullmatch(pattern, text) for pattern in LEFT_OUT.get(probe, ()))


@functools.cache
def watched(name: str) -> tuple[mw.Model, dict[float, float]]:
    """The model, and {confidence: margin} of every row that its head has answered."""
    model, margins = random_llada2() if name == RANDOM else mw.open(name, device="cpu"), {}
    head = model.head

    def watching(rows: torch.Tensor) -> torch.Tensor:
        logits = head(rows)
        for best, second in logits.detach().softmax(-1).topk(2).values.tolist():
            at = round(best, DIGITS)
            margins[at] = min(best - second, margins.get(at, 1.0))
        return logits

    model.head = watching  # type: ignore[method-assign]
    return model, margins


# A LLaDA2 of three layers, the first without experts; 8 experts in 4 groups of which 2 are kept.

LLADA2 = {
    "architectures": ["LLaDA2MoeModelLM"],
    "model_type": "llada2_moe",
    "vocab_size": 2048,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "partial_rotary_factor": 0.5,
    "rope_theta": 600000.0,
    "rms_norm_eps": 1e-6,
    "moe_intermediate_size": 24,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
    "block_size": 32,
    "tie_word_embeddings": False,
    "dtype": "float32",
}


def llada2_shapes() -> dict[str, tuple[int, ...]]:
    """The published names of the weights, and their shapes."""
    width, vocabulary, head, experts = 32, 2048, 8, 8
    shapes: dict[str, tuple[int, ...]] = {
        "model.word_embeddings.weight": (vocabulary, width),
        "model.norm.weight": (width,),
        "lm_head.weight": (vocabulary, width),
    }
    for number in range(3):
        layer = f"model.layers.{number}"
        shapes |= {f"{layer}.{name}.weight": (width,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes[f"{layer}.attention.query_key_value.weight"] = (8 * head, width)
        shapes |= {f"{layer}.attention.{name}_layernorm.weight": (head,) for name in ("query", "key")}
        shapes[f"{layer}.attention.dense.weight"] = (width, 4 * head)
        mlps = {"": 48} if number == 0 else {"shared_experts.": 24} | {f"experts.{n}.": 24 for n in range(experts)}
        for place, inner in mlps.items():
            mlp = f"{layer}.mlp.{place}"
            shapes |= {f"{mlp}gate_proj.weight": (inner, width), f"{mlp}up_proj.weight": (inner, width)}
            shapes[f"{mlp}down_proj.weight"] = (width, inner)
        if number > 0:
            shapes |= {f"{layer}.mlp.gate.weight": (experts, width), f"{layer}.mlp.gate.expert_bias": (experts,)}
    return shapes


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The weights of this name: norms about 1, biases about 0, maps wide enough that predictions differ."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, dtype=np.float32)
    return 0.3 * noise + 1 if "norm" in name else 0.3 * noise


@functools.cache
def random_llada2() -> mw.Model:
    tokenizer = mw.open("tiny-llada", device="cpu").tokenizer
    config = LLADA2 | {"mask_token_id": tokenizer.mask_token_id, "eos_token_id": tokenizer.eos_token_id}
    with TemporaryDirectory() as place:
        folder = Path(place) / RANDOM.replace(" ", "-")
        tokenizer.save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps(config))
        weights = {name: drawn(name, shape) for name, shape in llada2_shapes().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return mw.open(folder, device="cpu")


def saved_weights() -> dict[str, Any]:
    """Of each tensor that the opened model writes: its shape, norm and first value."""
    with TemporaryDirectory() as place:
        random_llada2().save_pretrained(Path(place) / "saved")
        weights = load_file(Path(place) / "saved" / "model.safetensors")
    return {
        name: {"shape": list(one.shape), "norm": float(np.linalg.norm(one)), "first": float(one.flat[0])}
        for name, one in sorted(weights.items())
    }
