"""Own task: do masks after the question, or a longer canvas, change the answers to your own questions?

    in one pass   Q Q ? ? ?
    64 more       Q Q ? ? ? _ _ _ _ _
    decoded       Q Q 1 2 1 _ _ _ _ _

Asked are the questions given with --data (a file with prompt and answer, GSM8K's own file, a data set of the hub), else
a few-shot question of each task. In one pass every token of the right answer is masked, and 0, 64 and 256 masks
follow: is the first token right, and what is the negative log-likelihood of the whole answer, summed over its tokens?
Decoded: on canvases of 256 and 1024 masks, in blocks of 32, every token with a probability of .9 or more is committed
(Wu et al., arXiv 2505.22618). Right is what the set's own rule says: the text itself, a pattern, or the last number.

Level lines are what one would hope for: neither masks nor a canvas say anything about the question. The finding is the
change of accuracy on the longer canvas, for decoded text is what you will use; where none was decoded, that of the
first token with the most masks. Instruction-tuned models are known to write end tokens early on long canvases
(LLaDA-Instruct was given rules against them, arXiv 2502.09992): look at the tokens before the end token and at empty
answers. Cut answers have no end token: they need a longer canvas.

A block diffusion model sees no masks after its block and decodes its own blocks; an autoregressive model has no masks,
and its canvas is the most tokens that it may write. Both are asked in one pass with the answer's own length alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import UnsetType

from maskwise.probes.checked import AskedSet, CheckedPrompt, asked_sets
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import DECODING_COST, Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, SHARE, TOKENS, Estimate, answers, change, curve, mean, share, wide
from maskwise.support.typed import Count
from maskwise.tasks.datasets import is_checkable

NAME = "own-task"
ONE_PASS, DECODED = "one pass", "decoded"
PASSES = 64  # expected: about three tokens a pass, and 200 before the end token
SAID = {ONE_PASS: "one pass with {} more masks", DECODED: "decoded on a canvas of {}"}
MEASURES = {"correct": SHARE, "nats": NATS, "length": TOKENS, "empty": SHARE, "cut": SHARE}
WORDS = ("accuracy", "nats of the answer", "tokens before the end token", "empty answers", "cut answers")


def ask(
    setup: Setup, masks: tuple[int, ...] = (0, 64, 256), canvases: tuple[int, ...] = (256, 1024), questions: int = 64
) -> Iterator[Questions]:
    from maskwise.probes.answers.own_answers import read, write

    model = setup.model
    setup.note(f"{NAME}: --relevant, --distractors and --words play no part in its questions")
    more = masks if model.block is None and not model.causal else masks[:1]
    most = questions if any(map(is_checkable, setup.data.values())) else min(questions, 16)  # one of each task
    for asked in asked_sets(setup, most):
        source, longest = Points(asked.name, range(len(asked.questions))), asked.longest + (model.block or 0)
        for how, counts, answer in ((ONE_PASS, more, asked.longest_answer), (DECODED, canvases, 0)):
            fitting = [count for count in counts if longest + answer + count <= model.window]
            if len(fitting) < len(counts):
                room = f"prompts of {asked.longest} tokens of {asked.name} leave no room for {max(counts)} masks, {how}"
                setup.note(f"{NAME}: {room}: asked with {', '.join(map(str, fitting)) or 'none'}")
            for count in fitting:
                prompt = partial(prompt_of, setup, asked)
                condition = {"how": how, "masks": count}
                if how == ONE_PASS:
                    yield Questions(source, [condition], prompt, asked.answer, read, one_pass=True)
                else:
                    written = partial(write, canvas=count, check=asked.check)
                    yield Questions(source, [condition], prompt, asked.answer, written, DECODING_COST, passes=PASSES)


def prompt_of(setup: Setup, asked: AskedSet, point: int, condition: Mapping[str, Any]) -> CheckedPrompt:
    one, mask, causal = asked.questions[point], setup.asker.mask_id, setup.model.causal
    own = () if condition["how"] == DECODED else one.answer_ids if causal else [mask] * len(one.answer_ids)
    tail = (*own, *[mask] * (0 if causal else condition["masks"]))
    return CheckedPrompt((*one.ids, *tail), len(one.ids), one.answer_ids[0], tail.count(mask), question=one)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """The changes of accuracy, from the longest canvas on, then what each condition gives."""
    right = {how: wide(own, "masks") for how, own in table.groupby("how")}
    found = [
        change(f"change of accuracy, {SAID[how].format(masks)} instead of {min(own)}", own[masks], own[min(own)])
        for how, own in right.items()
        for masks in [*own][:0:-1]
    ]
    for (how, masks), own in table.groupby(["how", "masks"]):
        for (column, unit), words in zip(MEASURES.items(), WORDS, strict=True):
            if column in own.dropna(axis=1):
                name, values = f"{words}, {SAID[how].format(masks)}", answers(own, column)
                found.append(share(name, values) if unit == SHARE else mean(name, values, unit))
    return found


def own_table(table: Table, others: Tables | None = None, how: str | None = None) -> Table:
    """A row for each condition and measure; changes are from the fewest masks. how: of these answers alone."""
    fewest = table.groupby("how").masks.min()
    asked = table if how is None else table[table.how == how]
    measures = {column: unit for column, unit in MEASURES.items() if column in asked}
    return curve(asked, ["how", "masks"], measures, lambda condition: {"masks": fewest[condition["how"]]})


def advice(found: Sequence[Estimate]) -> str | None:
    return "decode on as many masks as answers need, or with --canvas growing" if found[0].side < 0 else None


drawn = partial(Figure, x="masks", y="", panel="measure", log=True)
PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        drawn(partial(own_table, how=ONE_PASS), label="Masks after those of the answer", title="In one pass"),
        drawn(partial(own_table, how=DECODED), label="Masks of the canvas", title="Decoded"),
    ],
    condition={"how": str, "masks": Count},
    evidence=dict.fromkeys(("nats", "length", "empty", "cut"), float | UnsetType),
    sizes={"quick": {"masks": (0, 64), "canvases": (64, 256), "questions": 16}},
    takes=is_checkable,
    advice=advice,
)
