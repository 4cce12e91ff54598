"""HotpotQA's published file: a JSON list of {"question", "answer", "type", "supporting_facts", "context"}.

Kept are the comparison questions that end in two options ("..., A or B?") of which one is the answer. The prompt holds
the supporting facts alone, in the order of the context, then the question with its options lettered; the answer is a
letter. Every second question has its options swapped, so that no letter is right more often than the text makes it.
"""

import json
import re
from pathlib import Path
from typing import Any

from maskwise.errors import UserError
from maskwise.tasks.labelled import Labelled

TWO_OPTIONS = re.compile(r"^(?P<lead>.+),\s*(?P<first>[^,?]+?),?\s+or\s+(?P<second>[^,?]+?)\s*\?$")
FIELDS = ("question", "answer", "type", "supporting_facts", "context")


def read_hotpotqa(path: Path) -> list[Labelled]:
    """The two-option questions of the file; refused when it is another file or holds none."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UserError(f"{path} is not JSON: give HotpotQA's published file") from None
    if not isinstance(entries, list) or not all(isinstance(e, dict) and set(FIELDS) <= e.keys() for e in entries):
        raise UserError(f"{path} is not HotpotQA's published form: a list of objects with {', '.join(FIELDS)}")
    found: list[Labelled] = []
    for entry in entries:
        exercise = two_option_question(entry, swapped=len(found) % 2 == 1)
        if exercise is not None:
            found.append(exercise)
    if not found:
        raise UserError(f"{path} holds no comparison question that ends in 'A or B?'")
    return found


def two_option_question(entry: dict[str, Any], swapped: bool) -> Labelled | None:
    """One entry as an exercise with the options (A) and (B), or None where it is of another kind."""
    match = TWO_OPTIONS.match(entry["question"].strip())
    if entry["type"] != "comparison" or match is None:
        return None
    options = [match["first"], match["second"]]
    right = [n for n, option in enumerate(options) if _plain(option) == _plain(entry["answer"])]
    if len(right) != 1:
        return None
    answer = options[right[0]]
    options = options[::-1] if swapped else options
    facts = " ".join(supporting_facts(entry))
    asked = f"Context: {facts}\nQuestion: {match['lead']}?\nOptions: (A) {options[0]}, (B) {options[1]}"
    return Labelled(asked, "AB"[options.index(answer)])


def supporting_facts(entry: dict[str, Any]) -> list[str]:
    """The sentences named as supporting facts, in the order in which the context has them."""
    wanted = {(title, number) for title, number in entry["supporting_facts"]}
    return [
        sentence.strip()
        for title, sentences in entry["context"]
        for number, sentence in enumerate(sentences)
        if (title, number) in wanted
    ]


def _plain(option: str) -> str:
    """For comparison: without case, articles or outer punctuation."""
    return re.sub(r"^(the|a|an)\s+", "", option.strip(" \"'“”.").casefold())
