"""Answers of an unfinished comparison of mitigations, kept on file so that it can be resumed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from maskwise.experiments.first_answers import Marked, PreparedQuestion
from maskwise.support.errors import UserError
from maskwise.support.files import open_own, parse_json, read_bytes, to_json, writing
from maskwise.support.typed import Count, Typed, decode

FILE = "cures.partial.jsonl"


class KeptAnswer(Typed, frozen=True, kw_only=True):
    cure: str
    task: str
    point: Count
    correct: bool
    nll: float | None = None


class KeptAnswers:
    """The answers on file of a comparison with this identity; those of any other are overwritten. folder None: none."""

    def __init__(self, folder: Path | None, identity: Mapping[str, Any]) -> None:
        self.file = None if folder is None else folder / FILE
        self.known: dict[tuple[str, str, int], Marked] = {}
        if self.file is None:
            return
        first, *lines = read_bytes(self.file).split(b"\n") if self.file.exists() else [b""]
        if _is_of(first, identity):
            self._read(lines[:-1])  # the last was torn by a kill, or is empty
        answers = [{"cure": cure} | answer._asdict() for (cure, _, _), answer in self.known.items()]
        self._write([identity, *answers], append=False)

    def _read(self, lines: Iterable[bytes]) -> None:
        for number, line in enumerate(lines, 2):
            try:
                answer = decode(line, KeptAnswer)
            except ValueError:
                raise UserError(f"{self.file} line {number} is not an answer: remove the file to begin again") from None
            known = Marked(answer.task, answer.point, answer.correct, answer.nll)
            self.known[answer.cure, answer.task, answer.point] = known

    def or_ask(self, cure: str, questions: Sequence[PreparedQuestion], ask: Callable[[], list[Marked]]) -> list[Marked]:
        """The answers on file, or those that `ask` gives, which are kept."""
        keys = [(cure, question.task, question.point) for question in questions]
        if all(key in self.known for key in keys):
            return [self.known[key] for key in keys]
        answers = ask()
        if self.file is not None:
            self._write({"cure": cure} | answer._asdict() for answer in answers)
        return answers

    def _write(self, objects: Iterable[Mapping[str, Any]], append: bool = True) -> None:
        assert self.file is not None
        with writing(f"into {self.file.parent}", "the answers so far are kept"), open_own(self.file, append) as opened:
            opened.write("".join(to_json(one) + "\n" for one in objects).encode())

    def forget(self) -> None:
        """When the result is written."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)


def _is_of(line: bytes, identity: Mapping[str, Any]) -> bool:
    try:
        return bool(parse_json(line.decode()) == parse_json(to_json(identity)))
    except ValueError:
        return False
