"""The type of probes: questions, measures and presentation in one value.

Everything else (presets, help, runner, scores, terminal, page) derives from the tuple of probes,
`maskwise.probes.PROBES`. To add a probe, write its file and add it to that tuple.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from maskwise.probes.examples import PAPER_RELEVANT, Baseline, main_of
from maskwise.probes.section import Entry, Lead, Section, Shown, Summary, TextTable
from maskwise.records.record import Condition, FieldTypes, Key, ProbeFields, Record, RecordFields, make_key, struct_of
from maskwise.scoring.claims import Claim
from maskwise.scoring.intervals import Estimate, mean_over_tasks
from maskwise.scoring.scores import Score
from maskwise.tasks.datasets import Dataset
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Place, Prompt
from maskwise.tasks.rules import TASKS, Task
from maskwise.tasks.words import Words

if TYPE_CHECKING:
    from maskwise.models.model import Model
    from maskwise.probes.answers.plain import Answer

Answerer = Callable[["Model", Sequence[Prompt]], "list[Answer]"]
Preset = Literal["quick", "default", "full", "paper"]
ProbeGroup = Literal["context", "evidence", "coherence"]

NO_MASK_TOKEN = "an autoregressive model has no mask token"
BY_BLOCKS = "a block diffusion model decodes block by block, which this probe does not measure"
POINTS_PER_UNIT = 100  # what is prepared, sorted by length and asked together


# What is asked


@dataclass(frozen=True)
class Settings:
    """The settings of a run: the numbers that its probes share, and each probe's own `parameters`.

    The default asks 100 points of each of the 16 tasks, with 10 relevant examples among 40 distractors. Several numbers
    in `relevant` are asked one after the other by the probes with `each_number`, the others use `main_relevant`
    (probes/examples.py).
    """

    preset: str
    probes: tuple[str, ...]
    tasks: tuple[str, ...]
    points: int = 100
    seed: int = 0
    relevant: tuple[int, ...] = (PAPER_RELEVANT,)
    distractors: int = 40
    filler: str = "."
    passages: int = 200
    passage_words: int = 100
    held_out: float = 0.5
    chat: bool = False
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)

    @property
    def main_relevant(self) -> int:
        return main_of(self.relevant)

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
    """What a probe plans its questions from. `own` holds the probe's parameters; `notes` takes what could not be run
    as asked, `not_visible` the counts of each probe that no answer of a block diffusion model sees (blocks.py)."""

    model: "Model"
    asker: Asker
    settings: Settings
    words: Words
    text: str
    data: Mapping[str, Dataset]
    notes: list[str]
    own: Mapping[str, Any] = field(default_factory=dict)
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
PromptMaker = Callable[[int, Condition], tuple[Prompt, str]]  # of a point: what is given, and the answer that counts


def items_of(probe: str, task: str, conditions: Sequence[Condition], made: PromptMaker) -> ItemMaker:
    """Test points of a task under each of these conditions that no record holds yet."""

    def items(points: Sequence[int], done: Collection[Key]) -> Iterator[Item]:
        for point, condition in product(points, conditions):
            key = make_key(probe, task, point, condition)
            if key not in done:
                yield Item(key, condition, *made(point, condition))

    return items


@dataclass(frozen=True)
class Unit:
    """Some points of one task under all its conditions: how many items they are, and how to make those not yet done.

    answer: how they are asked, by default in one forward pass. cost: the memory a token takes then, relative to plain
    asking; batches shrink by it. one_pass: prompts can be shown with the model's likeliest answers.
    """

    points: Sequence[int]
    conditions: int
    items: ItemMaker
    answer: Answerer | None = None
    cost: int = 1
    one_pass: bool = False


@dataclass(frozen=True)
class Variant:
    """One way to put a few-shot question. `condition` is what the record says of it; the rest builds the prompt.

    location None mixes relevant examples and distractors at random. open: format B (the prompt ends in masks), else
    format A (the answer alone is masked). A float in `masks` is a share of the length. distractors None means all,
    relevant None the run's main number of relevant examples, filler_id None the token of the run's filler.
    """

    probe: str
    condition: Condition = field(hash=False)
    location: int | None = None
    place: Place = "right"
    distractors: int | None = None
    open: bool = False
    masks: int | float = 1
    fillers: int = 0
    relevant: int | None = None
    filler_id: int | None = None


def slices(points: int) -> list[range]:
    return [range(first, min(first + POINTS_PER_UNIT, points)) for first in range(0, points, POINTS_PER_UNIT)]


def units_of(
    points: int, conditions: int, items: ItemMaker, answer: Answerer | None = None, cost: int = 1
) -> list[Unit]:
    """Units of so many points that are asked alike."""
    return [Unit(some, conditions, items, answer, cost) for some in slices(points)]


def units_for(
    probe: str,
    task: str,
    points: int,
    conditions: Sequence[Condition],
    made: PromptMaker,
    answer: Answerer | None = None,
    cost: int = 1,
) -> list[Unit]:
    """Units of so many points of a task, each under all these conditions."""
    return units_of(points, len(conditions), items_of(probe, task, conditions, made), answer, cost)


# What is measured


def first_condition(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    """The baseline of most probes: the fewest masks, fillers or the smallest share."""
    return conditions[0]


def first_of_same(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    """The first condition that agrees in the first entry: the fewest masks under the same order, steps or shots."""
    name, value = next(iter(condition.items()))
    return next(other for other in conditions if other[name] == value)


def no_baseline(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    return None


def accuracy_alone(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    return [entry]


def with_nll(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """The mean negative log-likelihood of the true token, in addition to the accuracy."""
    found = mean_over_tasks((record.task, record.nll) for record in group if record.nll is not None)
    return [entry.changed(**Estimate.of(found).named("nll"))]


@dataclass(frozen=True)
class Sentences:
    """How a score becomes a sentence of the page: what was seen, then what the interval allows to say.

    claims: by the direction of the interval (1 above zero, 0 not known, -1 below). change: what costs or raises.
    seen: what was measured, in words. takes: what the score needs, where it was not measured. addition: a further
    sentence. autoregressive: claim and reason for a model without masks, where that is a special case.
    """

    topic: str
    claims: Mapping[int, str]
    change: tuple[str, str, str]
    seen: Callable[[Shown], str]
    takes: str
    no_skill: Callable[[Shown], str] | None = None
    addition: Callable[[Shown], str] | None = None
    autoregressive: tuple[str, str] | None = None


@dataclass(frozen=True)
class ScoreRule:
    """A number that sums up a probe: its formula over the probe's records, and its words.

    unit: "share" (shown in percent) or "nats". A score may say over which conditions it goes, under the key "over".
    Two probes may give the same score; then the later one in the tuple that was run counts.
    """

    name: str
    title: str
    meaning: str
    formula: Callable[[Sequence[Record]], Score]
    sentences: Sentences | None = None
    unit: Literal["share", "nats"] = "share"


@dataclass(frozen=True)
class Probe:
    """One question to a model. The name is that of the command line, of the records and of the file.

    group: what it is about. about: a line for the help. condition, evidence: what its records hold under these names,
    by which a stranger's records are checked: the type of each field, or a struct. presets: that ask it by default.
    variants: the ways in which a few-shot question is put; all such probes share their episodes and are asked together.
    each_number: its variants are asked with every number of relevant examples of the run, not with the main one alone.
    units: everything else that is asked. one_pass: its units answer from one plain forward pass, as variants do, so
    that prompts of it can be shown with the model's likeliest answers. gradients: it takes gradients of the answer, so
    that a run with it can show them token by token.
    parameters: the probe's own numbers; quick and paper: those that differ in the presets of these names.
    not_causal: why an autoregressive model is not asked, empty if it is; not_blocks: likewise a block diffusion model,
    whose answers see no token after their block. only_blocks: other models are not asked.
    takes: whether it asks about a data set given with --data, by the set's name.
    scored: those of its records that the summary's entries are over. baseline: which condition a condition is compared
    with. measures: the summary's entries for the records of one
    condition. chance: accuracy of guessing, None where no one number says it. points_per_question: so many consecutive
    points are one question asked several times, which intervals draw together. questions: how many a paired difference
    rests on, of probes without variants. scores, claims, extras: further parts of
    the summary (`extras` by their key). lead: what it contributes to the first screen of the page.
    condition_words: texts for values of its conditions. claims_also_read: other probes the claims need.
    columns: of the terminal's table in place of the accuracy, none if empty. tables: further tables of the terminal,
    from the summary.
    """

    name: str
    group: ProbeGroup
    about: str
    condition: FieldTypes | type[ProbeFields] | None = None
    evidence: FieldTypes | type[ProbeFields] | None = None
    presets: tuple[Preset, ...] = ("full",)
    variants: Callable[[Setup], list[Variant]] | None = None
    each_number: bool = False
    units: Callable[[Setup], Iterable[Unit]] | None = None
    one_pass: bool = False
    gradients: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    not_causal: str = ""
    not_blocks: str = ""
    only_blocks: bool = False
    takes: Callable[[str], bool] = lambda data_set: False
    scored: Callable[[Sequence[Record]], Sequence[Record]] = lambda records: records
    baseline: Baseline = no_baseline
    measures: Callable[[Entry, Sequence[Record]], list[Entry]] = accuracy_alone
    chance: float | None = CHANCE
    points_per_question: int = 1
    questions: Callable[[Settings], int] | None = None
    scores: tuple[ScoreRule, ...] = ()
    claims: Callable[[Sequence[Record]], list[Claim]] | None = None
    claims_also_read: tuple[str, ...] = ()
    extras: Mapping[str, Callable[[Sequence[Record]], Any]] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    lead: Lead | None = None
    condition_words: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] | None = None
    tables: Callable[[Summary], list[TextTable]] | None = None
    measured: Any = None  # the probe of the new kind that this one stands for (one_probe.py)

    @cached_property
    def record_fields(self) -> RecordFields:
        """The structs that its records are checked by."""
        given = (self.condition, self.evidence)
        return RecordFields(*(struct_of(fields) if isinstance(fields, Mapping) else fields for fields in given))
