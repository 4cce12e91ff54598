"""Data sets: do masks disturb questions about real text?

    examples  text: label  text: label  text: Q _ _ _

Texts and labels of the data sets given with --data, a few examples with balanced labels, and masks worth a share of the
length behind those of the label. Of HotpotQA: questions with two options, the supporting facts as context, and one
example. The label's first token is scored.

A level line is what one would hope for. Guessing is right in one of as many questions as there are labels, of HotpotQA
in half.

The paper (arXiv 2511.21338, probe 12 and the data sets of probe 11, format B): on HotpotQA LLaDA-Base breaks at about
5 % of the length in masks; the tuned model stays level.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from maskwise.probes.blocks import sees_past_the_question
from maskwise.probes.labelled import data_examples, given_data, label_prompt, longest_that_fits, tests_that_fit
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, SHARE, Estimate, answers, change, curve, mean, share, wide
from maskwise.tasks.datasets import HOTPOTQA, READERS, Dataset, has_labels
from maskwise.tasks.prompts import Prompt

NAME = "datasets"


def takes(data: Dataset) -> bool:
    return data.name == HOTPOTQA or has_labels(data)


def ask(
    setup: Setup, shares: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2), longest_prompt: int = 1000, shots: int = 8
) -> Iterator[Questions]:
    """longest_prompt: in tokens. shots: examples, of HotpotQA always one."""
    asker, settings = setup.asker, setup.settings
    asked = [{"share": one} for one in (shares if sees_past_the_question(setup) else (0.0,))]
    if not any(map(takes, setup.data.values())):
        known = ", ".join((HOTPOTQA, *READERS))
        setup.note(
            f"{NAME} was not run for want of data: give it with --data NAME=PATH ({known} or a file of your own)"
        )
    for data, labels in given_data(setup, PROBE):
        examples = data_examples(asker, data, shots, settings.seed)
        fits = longest_that_fits(setup.model, [one["share"] for one in asked], labels.masks)
        longest = min(longest_prompt, fits)
        tests = tests_that_fit(asker, data, examples, settings.questions, longest, settings.seed)
        if len(tests) < settings.questions:
            setup.note(f"{data.name}: {len(tests)} questions of at most {longest} tokens, not {settings.questions}")

        def prompt(point: int, condition: Mapping[str, Any], examples=examples, tests=tests, labels=labels) -> Prompt:
            return label_prompt(asker, examples, tests[point], labels, share=float(condition["share"]))

        yield Questions(Points(data.name, range(len(tests))), asked, prompt)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """The change with the most masks over all data sets, then of each."""
    right, nats = wide(table, "share"), wide(table, "share", "nll")
    few, most = min(table.share), max(table.share)
    said = f"with {most:.0%} masks instead of {few:.0%}" if few else f"with {most:.0%} masks instead of none"
    found = []
    if most > few and len(right):
        found.append(change(f"accuracy {said}", right[most], right[few]))
        found.append(mean(f"log-likelihood of the label {said}", nats[few] - nats[most]))
    for task, own in table[table.share == few].groupby("task", observed=True):
        found.append(share(f"{task}: accuracy with the fewest masks", answers(own)))
        if most > few and task in right.index:
            found.append(change(f"{task}: accuracy {said}", right.loc[[task], most], right.loc[[task], few]))
    return found


def by_share(table: Table, others: Tables) -> Table:
    return curve(table, ["task", "share"], {"correct": SHARE, "nll": NATS}, {"share": min(table.share)})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_share, "share", "Extra masks, as a share of the length", "", series="task", panel="measure")],
    condition={"share": float},
    presets=("full", "paper"),
    sizes={"quick": {"shares": (0.0, 0.1, 0.2), "shots": 4}},
    takes=takes,
)
