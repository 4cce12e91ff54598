"""What every file and every --json output holds, field by field.

Tests hold the outputs against it (tests/helpers/outputs.py), a stranger's search of advise is checked by it when it is
read, and the site's page of fields is made of it (docs/pages.py). Fields are named by their paths (paths.py).
"""

from collections.abc import Mapping

from maskwise.records.paths import Schema, maybe, within
from maskwise.records.schema import (
    COUNT,
    COUNT_OR_NULL,
    FLAG,
    FLAG_OR_NULL,
    MANIFEST,
    MODEL,
    NUMBER,
    NUMBER_OR_NULL,
    OBJECT,
    OPTIONAL,
    RECORD,
    SAMPLED,
    SETTINGS,
    TEXT,
    TEXT_OR_NULL,
    Field,
    or_null,
)

LIST = ("a list", lambda value: isinstance(value, list))

_ENDS = {
    "value": Field(*NUMBER_OR_NULL, "null where it cannot be told"),
    "low": Field(*NUMBER_OR_NULL, "lower end of the 95 % interval"),
    "high": Field(*NUMBER_OR_NULL, "upper end"),
}
_RULES = {
    "rules_low": Field(*NUMBER_OR_NULL, "the same over new word rules: lower end"),
    "rules_high": Field(*NUMBER_OR_NULL, "upper end"),
}
_SCORE = _ENDS | {
    "why": Field(*TEXT_OR_NULL, "why the value is null: no skill, not measured, no masks"),
    **_RULES,
    "n": Field(*COUNT_OR_NULL, "test points"),
    "differed": Field(*COUNT_OR_NULL, "of these, answers that changed"),
}
_CHECKPOINT = {name: MODEL[name] for name in ("name", "kind", "parameters", "window", "mask_id", "shift", "causal")} | {
    "lora_targets": Field(*TEXT, "regular expression of the linear layers that adapters go on"),
    "planted": MODEL["planted"],
    "checked": Field(*TEXT, "of a published checkpoint: what our class was held against", False),
}
_LIKELIHOODS = {
    f"{name}{end}": Field(*NUMBER_OR_NULL, about, False)
    for name, meaning in (("nll", "mean -log P(right answer), nats"), ("nll_allowed", "of the format"),
                          ("nll_choice", "of the content"))
    for end, about in (("", meaning), ("_low", "lower end"), ("_high", "upper end"))
}  # fmt: skip
_ENTRY = {
    "condition": RECORD["condition"],
    "masks": Field(*COUNT, "masks that the model saw, mean of the records"),
    "visible": Field(*COUNT, "of a block diffusion model: masks that the answers see, mean of the records", False),
    "n": Field(*COUNT, "records"),
    "accuracy": Field(*NUMBER_OR_NULL, "share of right answers, all tasks weighing the same"),
    "low": _ENDS["low"],
    "high": _ENDS["high"],
    **_RULES,
    "confidence": Field(*NUMBER, "mean probability of what was predicted; not of coherence", False),
    "entropy": Field(*NUMBER, "mean, in nats; not of coherence", False),
    **_LIKELIHOODS,
    "paired": Field(*OBJECT, "the difference from the baseline condition over the same questions", False),
    "paired.baseline": RECORD["condition"],
    "paired.difference": Field(*NUMBER, "in accuracy"),
    **{f"paired.{name}": field for name, field in (_ENDS | _RULES).items() if name != "value"},
    "paired.n": Field(*COUNT, "points asked under both"),
    "paired.differed": Field(*COUNT, "of these, answers that changed"),
    **{f"paired.{name}": Field(*OBJECT, "the same in nats", False) for name in ("nll", "nll_allowed", "nll_choice")},
    "*": Field(
        "anything",
        lambda value: True,
        "what a probe measures beside: recall chance, between and errors; attribution and attention evidence; "
        "marginals, total-correlation, order and coherence the means of their evidence",
        False,
    ),
}
_CLAIM = {
    "name": Field(*TEXT, "finding and number of relevant examples in one"),
    "claim": Field(*TEXT, "in words"),
    "measure": Field(*TEXT, "what was measured"),
    "unit": Field(*TEXT, "of the value"),
    "n": Field(*COUNT, "pieces of text, or questions"),
    **_ENDS,
    "nothing": Field(*NUMBER, "the value under the null hypothesis"),
    "asked": Field(*NUMBER, "the value that the claim requires"),
    "verdict": Field(*TEXT, "holds, in direction, does not hold, or cannot be told; by Holm over all claims"),
    "alone": Field(*TEXT, "the verdict by the claim's own interval"),
    "p": Field(*NUMBER_OR_NULL, "its p value"),
    "nats": Field(*OBJECT, "the same difference in nats: value, low, high", False),
    "nats_content": Field(*OBJECT, "of the content alone", False),
    "finding": Field(*TEXT, "the claim, whatever number of examples"),
    "relevant": Field(*COUNT_OR_NULL, "relevant examples; null: the paper's 10"),
}
_RUN = {
    "model": Field(*TEXT, "the model's name"),
    "out": Field(*TEXT, "the run folder"),
    "settings": Field(*OBJECT, "as in manifest.json"),
    "not_visible": MANIFEST["not_visible"],
    "scores": Field(*OBJECT, "each score by its name; locality_1 is that of one relevant example"),
    **within("scores.*", _SCORE),
    "scores.*.over": Field(*TEXT, "of degradation: the mask counts", False),
    "scores.*.allowed": Field(*OBJECT, "of nats: the part of the format, a score", False),
    "scores.*.choice": Field(*OBJECT, "of nats: the part of the content, a score", False),
    "probes": Field(*OBJECT, "each probe's conditions; some probes add measures of their own"),
    **within("probes.*[]", _ENTRY),
    "claims": Field(*LIST, "the papers' claims, judged", False),
    **within("claims[]", _CLAIM),
    "calibration": Field(*OBJECT, "rule, without_examples, excluded, scores", False),
    "precision": Field(*OBJECT, "with --precision: wanted, first_stage, second_stage, asked, half_width, worst", False),
    "published": Field(*LIST, "with --paper: what the paper published beside each measured value", False),
    "aup": Field(*OBJECT, "of coherence: area under accuracy against tokens per forward pass", False),
    "mechanism": Field(*OBJECT, "of mechanism: the paths by which masks act", False),
    "end_flood": Field(*or_null(OBJECT), "of generation-length: tokens by which answers end sooner", False),
    "score_movement": Field(*OBJECT, "of likelihood-masks: by masks, the mean and the largest change in nats", False),
    "shots_against_masks": Field(*OBJECT, "of shots-masks: the correlation over tasks", False),
}
_TRAINED = {
    "model": Field(*TEXT, "what was trained"),
    "out": Field(*TEXT, "the folder that was written"),
    "held_out": Field(*COUNT, "examples kept for the measures"),
    "dropped": Field(*COUNT, "examples that exceed the context length"),
    "trained_parameters": Field(*COUNT, "how many"),
    "steps": Field(*COUNT, "optimiser steps made"),
    "masks": Field(*OBJECT, "masks appended at evaluation"),
    "masks.few": Field(*COUNT, "..."),
    "masks.many": Field(*COUNT, "..."),
    "before": Field(*or_null(OBJECT), "the measures before; null where nothing was held out"),
    "after": Field(*or_null(OBJECT), "and after"),
    "losses": Field(*LIST, "of every step that was logged"),
}
_TUNE_MEASURES = {
    "ce": Field(*NUMBER, "cross-entropy of the masked answer tokens, nats"),
    "tv": Field(*NUMBER, "L1 distance between the predictions with few and many masks, 0 to 2"),
    "accuracy_few": Field(*NUMBER, "with few masks"),
    "accuracy_many": Field(*NUMBER, "with many"),
    "gap": Field(*NUMBER, "their difference"),
}
_TRAIN_MEASURES = {
    "nelbo": Field(*NUMBER, "nats per token"),
    "next_few": Field(*NUMBER, "NLL of the next token with few masks behind it, nats"),
    "next_many": Field(*NUMBER, "with many"),
    "mask_tax": Field(*NUMBER, "their difference"),
}
_TRACE = {
    "prompt": Field("a text, a chat or token ids", lambda value: isinstance(value, str | list), "as it was given"),
    "text": Field(*TEXT, "the new text"),
    "prompt_tokens": Field(*COUNT, "length of the prompt"),
    "masks": Field(*COUNT, "new tokens"),
    "steps": Field(*COUNT, "steps"),
    "forwards": Field(*COUNT, "forward passes; twice the steps under guidance"),
    "ids": Field(*LIST, "the new tokens"),
    "order": Field(*LIST, "the step at which each was committed"),
}

_INTERVAL = {"mean": Field(*NUMBER, "..."), "low": _ENDS["low"], "high": _ENDS["high"]}
_CONFIRMED = {
    "setting": Field(*TEXT, "its name"),
    "quality": Field(*OBJECT, "mean, low, high"),
    **within("quality", _INTERVAL),
    "to_reference": Field(*OBJECT, "difference from the reference: mean, low, high"),
    **within("to_reference", _INTERVAL),
    "to_best": Field(*OBJECT, "difference from the best: mean, low, high"),
    **within("to_best", _INTERVAL),
    "passes": Field(*NUMBER, "forward passes per question"),
    "seconds": Field(*NUMBER, "per question"),
    "frontier": Field(*FLAG, "is no other both better and cheaper?"),
}

ADVICE: Schema = {
    "model": Field(*TEXT, "the model's name"),
    "quality": Field(*TEXT, "what a good answer is, in words"),
    "unit": Field(*TEXT, "of the quality: share or value"),
    "questions": Field(*OBJECT, "how many were asked"),
    "questions.searched": Field(*COUNT, "in the search"),
    "questions.held_back": Field(*COUNT, "to confirm what it found"),
    "questions.embedded": Field(*FLAG, "are they those that come with the package?"),
    "sentence": Field(*TEXT, "the finding"),
    "all_equal": Field(*FLAG, "does no pair of settings differ?"),
    "winner": Field(*TEXT_OR_NULL, "the best setting, if it is better than the reference beyond chance"),
    "reference": Field(*TEXT, "the setting that the others are compared with"),
    "advice": Field(*LIST, "best quality; fastest within 1 point; within 3"),
    "advice[].goal": Field(*TEXT, "which of these"),
    **within("advice[]", _CONFIRMED),
    "advice[].options": Field(*OBJECT, "of mw.generate, by name"),
    "advice[].command": Field(*TEXT, "the same as a command line"),
    "advice[].python": Field(*TEXT, "as Python"),
    "advice[].lm_eval": Field(*TEXT, "as arguments of lm-eval"),
    "confirmed": Field(*LIST, "the settings that answered the questions held back"),
    **within("confirmed[]", _CONFIRMED),
    "dropped": Field(*LIST, "settings that the search dropped, the latest first"),
    "dropped[].setting": Field(*TEXT, "its name"),
    "dropped[].questions": Field(*COUNT, "how many it was asked"),
    "dropped[].quality": Field(*NUMBER, "mean over these"),
    "dropped[].cost": Field(*NUMBER, "what it was ranked by: forward passes or seconds"),
    "dropped[].passes": Field(*NUMBER, "forward passes per question"),
    "dropped[].seconds": Field(*NUMBER, "per question"),
    "not_tried": Field(*LIST, "what was left out"),
    "cost": Field(*TEXT, "what was said before it started"),
    "passes": Field(*NUMBER, "forward passes in all"),
    "seconds": Field(*NUMBER, "of decoding in all"),
    "device": Field(*TEXT, "where"),
    "folder": Field(*TEXT, "the folder of the search"),
}
SEARCH: Schema = {
    "command": Field(*TEXT, "advise"),
    "identity": Field(*OBJECT, "what must be the same for a search to go on"),
    "identity.model": Field(*OBJECT, "the model that was asked"),
    "identity.model.fingerprint": Field(*TEXT, "of its weights"),
    "identity.model.dtype": MODEL["dtype"],
    "identity.questions": Field(*OBJECT, "that were asked"),
    "identity.questions.count": Field(*COUNT, "how many"),
    "identity.questions.hash": Field(*TEXT, "of their texts"),
    "identity.space": Field(*OBJECT, "the settings that were searched"),
    "identity.cost": Field(*TEXT, "what settings are ranked by: passes or seconds"),
    "identity.budget": Field(*NUMBER_OR_NULL, "seconds of decoding; null is no limit"),
    "identity.seed": SETTINGS["seed"],
    "versions": MANIFEST["versions"],
    "planted": MODEL["planted"],
}

FILES: Mapping[str, Schema] = {
    "records.jsonl of a run folder, each line": {**RECORD, **OPTIONAL},
    "manifest.json of a run folder": {
        "model": MANIFEST["model"],
        **within("model", MODEL),
        "settings": MANIFEST["settings"],
        **within("settings", SETTINGS),
        "versions": MANIFEST["versions"],
        "command": MANIFEST["command"],
        "complete": MANIFEST["complete"],
        "notes": MANIFEST["notes"],
        "not_visible": MANIFEST["not_visible"],
    },
    "sample.json of a run folder, each prompt": {
        **SAMPLED,
        "attribution": Field(*LIST, "for each token the norm of the answer's gradient, of the largest", False),
    },
    "settings.json of tune and train": {
        "identity": Field(*OBJECT, "what must be the same for a run to go on"),
        "identity.model": Field(*TEXT, "the model's name"),
        "identity.dtype": Field(*TEXT, "as it was asked for"),
        "identity.settings": Field(*OBJECT, "every option by name"),
        "identity.data": Field(*OBJECT, "the file's name and its sha256"),
        "identity.processes": Field(*COUNT, "how many train together"),
        "identity.seeds": Field(*COUNT, "the version of the law of seeds"),
        "base": Field(*TEXT, "fingerprint of the model's weights"),
        "teacher": Field(*TEXT, "fingerprint of the teacher's", False),
        "counts": Field(*OBJECT, "examples used, held out and dropped; trained parameters"),
        "versions": MANIFEST["versions"],
    },
    "manifest.json of a search of advise": SEARCH,
    "traces of generate --out, each line": _TRACE,
}
OUTPUTS: Mapping[str, Schema] = {
    "models": {"models": Field(*LIST, "one entry per model"), **within("models[]", _CHECKPOINT)},
    "convert": {
        "source": Field(*TEXT, "the checkpoint that was converted"),
        "out": Field(*TEXT, "the folder that was written"),
        "model": Field(*OBJECT, "what it holds now"),
        **within("model", _CHECKPOINT),
    },
    "verify": {
        "model": Field(*TEXT, "the checkpoint"),
        "dtype": Field(*TEXT, "of the comparison"),
        "texts": Field(*COUNT, "texts tokenised by both"),
        "texts_with_other_ids": Field(*COUNT, "of these, with different tokens"),
        "chat_prompts_agree": Field(*FLAG_OR_NULL, "do the chat templates give the same?"),
        "positions": Field(*COUNT, "positions whose logits were compared"),
        "largest_logit_difference": Field(*NUMBER, "of all of them"),
        "largest_logit": Field(*NUMBER, "of the original code"),
        "greedy_tokens_that_differ": Field(*COUNT, "positions with another most probable token"),
    },
    "diagnose (one model)": _RUN,
    "diagnose (several models), report": {
        "report": Field(*TEXT, "the page"),
        "runs": Field(*LIST, "each run as diagnose prints it"),
        **within("runs[]", _RUN),
        "table": Field(*TEXT, "of report, several folders: the page with one table", False),
        "searches": Field(*LIST, "of report: each search as advise prints it", False),
    },
    "compare": {
        "models": Field(*OBJECT, "each model's own numbers, null where they were not measured"),
        **{
            f"models.*.{name}": Field(*NUMBER_OR_NULL, about)
            for name, about in {
                "degradation": "(max - min) / max over mask counts",
                "mask_tax": "a score",
                "locality": "a score",
                "accuracy_k2": "with two masks",
                "accuracy_most_masks": "with the most",
                "mask_loss": "their difference",
                "recall": "accuracy of recall, two masks",
                "most_masks": "how many that is",
                "nelbo": "nats per token",
                "confidence": "mean",
                "entropy": "mean, nats",
                "few_steps_degradation": "mean over numbers of steps",
                "multi_step_accuracy": "mean over numbers of steps",
            }.items()
        },
        "models.*.few_steps": Field(*OBJECT, "degradation by number of steps, scores"),
        "models.*.intervals": Field(*OBJECT, "[low, high] of the scores"),
        "models.*.out": Field(*TEXT, "the run folder"),
        "reduction": Field(*OBJECT, "1 - degradation after / before, of the second model"),
        **within("reduction", _SCORE),
        "changes": Field(*OBJECT, "of each further model: what changed from the first"),
        **{
            f"changes.*.{name}": Field(*or_null(OBJECT), "value or difference with its interval")
            for name in (
                "reduction",
                "few_steps",
                "few_steps_reduction",
                "mask_loss",
                "recall",
                "accuracy_k2",
                "accuracy_most_masks",
                "multi_step_accuracy",
                "nelbo",
                "confidence",
                "entropy",
            )
        },
        "baseline": Field(*TEXT, "the first model"),
        "report": Field(*TEXT, "the page"),
    },
    "export": {
        "model": Field(*TEXT, "the checkpoint"),
        "adapter": Field(*TEXT_OR_NULL, "the adapter; null where MODEL names it"),
        "out": Field(*TEXT, "the folder that was written"),
    },
    "generate": {
        "model": Field(*TEXT, "the model's name"),
        "settings": Field(*OBJECT, "every option of decoding by name, the mask count, and whether it is approximate"),
        "generations": Field(*LIST, "one per prompt"),
        **within("generations[]", _TRACE),
        "divergence": Field(*or_null(OBJECT), "with --divergence: tokens, agreement, first"),
        "seed": Field(*COUNT, "of the random numbers"),
    },
    "score": {
        "model": Field(*TEXT, "the model's name"),
        "settings": Field(*OBJECT, "method, samples, masks, seed"),
        "scores": Field(*LIST, "each line of the data with its likelihood"),
        "scores[].prompt": Field(*TEXT, "as given"),
        "scores[].answer": Field(*TEXT, "as given"),
        "scores[].log_likelihood": Field(*NUMBER, "nats"),
        "scores[].tokens": Field(*COUNT, "of the answer"),
        "scores[].method": Field(*TEXT, "the estimator"),
        "scores[].forwards": Field(*COUNT, "forward passes it took"),
        "scores[].masks": Field(*COUNT, "masks after the answer"),
        "scores[].greedy": Field(*FLAG_OR_NULL, "is it what greedy decoding gives? null where not known"),
    },
    "advise (also advice.json)": ADVICE,
    "tune (also result.json)": {
        **_TRAINED,
        "pairs": Field(*COUNT, "trained on"),
        **maybe(within("before", _TUNE_MEASURES) | within("after", _TUNE_MEASURES)),
    },
    "train (also result.json)": {
        **_TRAINED,
        "tokens": Field(*COUNT, "of all rows"),
        "rows": Field(*COUNT, "trained on"),
        **maybe(within("before", _TRAIN_MEASURES) | within("after", _TRAIN_MEASURES)),
    },
    "toy (also toy.json)": {
        "marginals": Field(*OBJECT, "P(A) and P(B) of the model in one parallel step"),
        "data": Field(*LIST, "shares of [AB, A without B, B without A, neither] in the data"),
        "parallel": Field(*LIST, "of one parallel step"),
        "sequential": Field(*LIST, "of decoding from left to right"),
        "rules": Field(*OBJECT, "of each strategy, by name"),
        "forwards": Field(*OBJECT, "mean forward passes of each strategy"),
    },
    "cures (also cures.json)": {
        "model": Field(*TEXT, "the model's name"),
        "masks": Field(*COUNT, "of the canvas"),
        "block": Field(*COUNT, "of a block diffusion model: tokens of a block, whose masks alone are seen", False),
        "n": Field(*COUNT, "questions"),
        "two_masks": Field(*OBJECT, "the reference: accuracy with two masks, low, high"),
        "cures": Field(*LIST, "each mitigation; the first is the baseline"),
        "cures[].cure": Field(*TEXT, "its name"),
        "cures[].paper": Field(*TEXT_OR_NULL, "where it was published"),
        "cures[].accuracy": Field(*NUMBER_OR_NULL, "null where it could not be had"),
        "cures[].low": _ENDS["low"],
        "cures[].high": _ENDS["high"],
        "cures[].difference": Field(*NUMBER_OR_NULL, "from the baseline, over the same questions"),
        "cures[].difference_low": _ENDS["low"],
        "cures[].difference_high": _ENDS["high"],
        "cures[].tokens_per_pass": Field(*NUMBER, "200 / forward passes"),
        "cures[].training": Field(*TEXT, "what it took"),
        "cures[].why": Field(*TEXT, "why it could not be had, where no adapter would help", False),
    },
}
