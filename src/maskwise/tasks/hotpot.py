"""HotpotQA's published file: a JSON list of {"question", "answer", "supporting_facts", "context"}.

supporting_facts are [title, number of the sentence], context [title, sentences]; on the hub both are columns instead:
{"title": [...], "sent_id": [...]} and {"title": [...], "sentences": [...]}. Both are read, from .json, .jsonl and
.parquet.

Kept are the questions that end in two options ("..., A or B?", or "... A or B?" where A and B are the titles of
supporting facts) of which one is the answer, and whose supporting facts all stand in the context (in the full-wiki file
many do not). The prompt is the paper's (Piskorz et al., arXiv 2511.21338), with the supporting facts alone in the order
of the context and the question as it is in the file. Every second question has its options swapped, so that no letter
is right more often than the text makes it.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from maskwise.support.errors import UserError
from maskwise.tasks.labelled_exercises import Labelled
from maskwise.tasks.tables import broken, read_rows

TWO_OPTIONS = re.compile(r"^(?P<lead>.+),\s*(?P<first>[^,?]+?),?\s+or\s+(?P<second>[^,?]+?)\s*\?$")
SYSTEM = "Which of the following answers is true? Respond with [A] or [B]."
ASKED = "**Context**:\n'{context}'.\n\n**Question**: '{question}' [A] {first}\n [B] {second}"
ANSWER = "**Answer**:[{}]"
FIELDS = ("question", "answer", "supporting_facts", "context")


def read_hotpotqa(path: Path) -> list[Labelled]:
    """The two-option questions of the file; refused when it is another file or holds none."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: give one file of HotpotQA")
    found: list[Labelled] = []
    for number, entry in read_rows(path):
        if not set(FIELDS) <= entry.keys():
            raise UserError(f"{path} is not HotpotQA's published form: a list of objects with {', '.join(FIELDS)}")
        try:
            exercise = two_option_question(entry, swapped=len(found) % 2 == 1)
        except (TypeError, ValueError, AttributeError, LookupError):
            raise broken(path, number, "an entry of HotpotQA as published") from None
        if exercise is not None:
            found.append(exercise)
    if not found:
        raise UserError(f"{path} holds no question that ends in 'A or B?'")
    return found


def two_option_question(entry: dict[str, Any], swapped: bool) -> Labelled | None:
    """One entry as an exercise with the options [A] and [B], or None where it is of another kind."""
    question = entry["question"].strip()
    wanted = pairs_of(entry["supporting_facts"], "sent_id")
    facts = sentences_of(entry, wanted)
    match = TWO_OPTIONS.match(question) or _between_titles(question, {title for title, _ in wanted})
    if match is None or len(facts) < len(set(wanted)):
        return None
    options = [match["first"], match["second"]]
    right = [n for n, option in enumerate(options) if _plain(option) == _plain(entry["answer"])]
    if len(right) != 1:
        return None
    answer = options[right[0]]
    options = options[::-1] if swapped else options
    asked = ASKED.format(context=" ".join(facts), question=question, first=options[0], second=options[1])
    return Labelled(asked, "AB"[options.index(answer)], ANSWER)


def pairs_of(column: Any, second: str) -> list[tuple[str, Any]]:
    """(title, value) from a list of pairs, or from the hub's two lists."""
    if isinstance(column, dict):
        return list(zip(column["title"], column[second], strict=True))
    return [*map(tuple, column)]


def sentences_of(entry: dict[str, Any], wanted: Iterable[tuple[str, int]]) -> list[str]:
    """The sentences named as supporting facts, in the order in which the context has them."""
    named = set(wanted)
    return [
        sentence.strip()
        for title, sentences in pairs_of(entry["context"], "sentences")
        for number, sentence in enumerate(sentences)
        if (title, number) in named
    ]


def _between_titles(question: str, titles: set[str]) -> re.Match[str] | None:
    """The options of a question without a comma before them, where they are titles of the supporting facts."""
    either = "|".join(re.escape(re.sub(r" \(.*\)$", "", title)) for title in sorted(titles))
    return re.match(
        rf"^(?P<lead>.+?)\s+(?P<first>{either}),?\s+or\s+(?P<second>{either})\s*\?$", question, re.IGNORECASE
    )


def _plain(option: str) -> str:
    """For comparison: without case, articles or outer punctuation."""
    return re.sub(r"^(the|a|an)\s+", "", option.strip(" \"'“”.").casefold())
