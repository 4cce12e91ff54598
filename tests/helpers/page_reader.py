"""Reads a page as a browser would: every tag closed, the text in its order."""

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "hr", "img", "input", "link", "base", "col", "wbr"}


class Reader(HTMLParser):
    """Walks a page as a browser would, and keeps what the tests ask about."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def values(self, attribute: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(attribute)) is not None]


def read(page: Path) -> Reader:
    return Reader(page.read_text(encoding="utf-8"))


class Sections(HTMLParser):
    """Of each probe's section, by its id: the texts of its lists and of the rows of its tables; under "" the first
    screen's."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.name, self.into = "", ""
        self.items: dict[str, list[str]] = {"": []}
        self.rows: dict[str, list[list[str]]] = {"": []}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "details" and dict(attrs).get("id"):
            self.name = str(dict(attrs)["id"])
            self.items[self.name], self.rows[self.name] = [], []
        if tag == "tr":
            self.rows[self.name].append([])
        if tag == "li":
            self.items[self.name].append("")
        if tag == "td":
            self.rows[self.name][-1].append("")
        self.into = tag if tag in ("li", "td") else self.into

    def handle_endtag(self, tag: str) -> None:
        self.into = "" if tag == self.into else self.into

    def handle_data(self, data: str) -> None:
        if self.into == "li":
            self.items[self.name][-1] += data
        if self.into == "td":
            self.rows[self.name][-1][-1] += data
