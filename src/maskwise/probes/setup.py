"""What a probe plans its questions from (`Setup`) and what the runner asks: an `Item` for each answer, in `Unit`s."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from maskwise.records.record import Condition, Key
from maskwise.tasks.datasets import Dataset
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.rules import TASKS, Task
from maskwise.tasks.words import Words

if TYPE_CHECKING:
    from maskwise.models.model import Model
    from maskwise.probes.answers.plain import Answer

Answerer = Callable[["Model", Sequence[Prompt]], "list[Answer]"]
Preset = Literal["quick", "default", "full", "paper"]
PAPER_RELEVANT = 10  # relevant examples in the paper's questions


@dataclass(frozen=True)
class Settings:
    """The settings of a run: the numbers that its probes share, and each probe's own `parameters`.

    Several numbers in `relevant` are asked one after the other by the probes that measure context, the others use
    `main_relevant`. one_context: questions with the paper's ten relevant examples see the same ones in a task, as
    published; else, and with any other number, a context is drawn for each question.
    """

    preset: str
    probes: tuple[str, ...]
    tasks: tuple[str, ...]
    questions: int = 100  # of a task
    seed: int = 0
    relevant: tuple[int, ...] = (PAPER_RELEVANT,)
    distractors: int = 40
    filler: str = "."
    passages: int = 200
    passage_words: int = 100
    held_out: float = 0.5
    chat: bool = False
    one_context: bool = True
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)

    @property
    def main_relevant(self) -> int:
        return PAPER_RELEVANT if PAPER_RELEVANT in self.relevant else max(self.relevant)

    def changed(self, probe: str, **parameters: Any) -> "Settings":
        """The same with other parameters of one probe."""
        own = {**self.parameters.get(probe, {}), **parameters}
        return replace(self, parameters={**self.parameters, probe: own})


@dataclass(frozen=True)
class Asker:
    """Tokenizer, mask and filler of one model. `mask_id` None is an autoregressive model."""

    tokenizer: Any
    mask_id: int | None
    filler_id: int
    chat: bool = False

    @property
    def mask(self) -> int:
        """The mask of a model that has one."""
        assert self.mask_id is not None
        return self.mask_id


@dataclass(frozen=True)
class Setup:
    """What a probe plans its questions from. `notes` takes what could not be run as asked, `not_visible` the counts of
    each probe that no answer of a block diffusion model sees (blocks.py)."""

    model: "Model"
    asker: Asker
    settings: Settings
    words: Words
    text: str
    data: Mapping[str, Dataset]
    notes: list[str]
    not_visible: dict[str, list[int]] = field(default_factory=dict)
    tasks: Sequence[Task] = TASKS  # those that the settings can name
    few_shot: dict[Any, list[Any]] = field(default_factory=dict)  # questions.few_shot: shared by all probes

    def note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)


@dataclass(frozen=True)
class Item:
    """One test point under one condition: what is given to the model, and the answer that counts."""

    key: Key
    condition: Condition = field(hash=False)
    prompt: Prompt
    answer: str


ItemMaker = Callable[[Sequence[int], Collection[Key]], Iterator[Item]]


@dataclass(frozen=True)
class Unit:
    """Some points of one task under all its conditions: how many items they are, and how to make those not yet done.

    answer: how they are asked, by default in one forward pass. cost: the memory a token takes then, relative to plain
    asking; batches shrink by it. one_pass: prompts can be shown with the model's likeliest answers. passes: forward
    passes over each prompt.
    """

    points: Sequence[int]
    conditions: int
    items: ItemMaker
    answer: Answerer | None = None
    cost: int = 1
    one_pass: bool = False
    passes: int = 1
