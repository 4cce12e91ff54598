"""numerics (ours): how much of a difference between two runs is the machine's.

The same questions under settings that should not matter (numeric_settings.py): one question at a time or all in one
batch, another order, another dtype, compiled layers, a cache that is refreshed at every step, plain attention, and the
weights of `--weights`. Each differs in one thing from the reference: float32, in batches. One-pass answers (few-shot
questions, format B with two masks) and greedy generations of 64 tokens (checkable questions) are reported apart.
Condition: {"answers": "one pass", "setting": "batch"}; evidence: dtype, margin (best less second logit; of a generation
the least of its tokens, in the reference) and scale (the largest logit).

Repeated runs in half precision, with an order, batches and an attention drawn at random, give the 95th percentile of
the change of accuracy (scoring/flips.py). The path of `--deterministic` is asked twice, in opposite orders, and must
change nothing. Related: arXiv 2604.13413.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from msgspec import UNSET, UnsetType

from maskwise.probes import numeric_settings as numeric
from maskwise.probes.checked import AskedSet, CanvasLayout, asked_sets, canvas_items
from maskwise.probes.few_shot import context_of, episodes, few_shot_items
from maskwise.probes.numeric_flips import EDGES, NumericsSummary, numerics_summary
from maskwise.probes.numeric_settings import BFLOAT16, FLOAT16, GENERATIONS, IN_WORDS, ONE_PASS, SINGLE, NumericSetting
from maskwise.probes.probe import Asker, Item, Probe, Setup, Unit, Variant
from maskwise.probes.section import Entry, Point, Section, Shown, Summary, TextTable, as_share, drawn_entry
from maskwise.records.record import Condition, Key, Record
from maskwise.scoring.flips import MarginBin, RunNoise
from maskwise.scoring.numbers import tenths
from maskwise.tasks.checkable import CHECKED
from maskwise.tasks.episodes import Episode

NAME = "numerics"
RELEVANT, DECODING_COST = 1, 4
KINDS = {ONE_PASS: "one-pass answers", GENERATIONS: "generations"}
RANGES = ("below 0.03", "0.03 to 0.1", "0.1 to 0.3", "0.3 to 1", "1 to 3", "above 3")  # between the EDGES


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.varied_numerics import ModelCopies, ask_under, machine_of, missing_bytes, write_under

    own, model, seed = setup.own, setup.model, setup.settings.seed
    if getattr(model, "spread", False):
        setup.note(f"{NAME} was not run: it copies the model, and this one is spread over several devices")
        return
    missing = missing_bytes(model)
    if missing:
        setup.note(f"{NAME} was not run: its float32 reference needs {missing / 2**30:.0f} GiB more of the GPU")
        return
    copies, machine = ModelCopies(), machine_of(model)
    # --points raises `questions`; as many one-pass answers are then asked as there are generations.
    points = min(setup.settings.points, max(own["points"], -(-own["questions"] // len(setup.settings.tasks))))
    asked_of = episodes(setup, RELEVANT, own["distractors"], points)
    contexts = [context_of(setup, episode, afresh=True) for episode in asked_of]
    planned: list[tuple[NumericSetting, Unit]] = []
    for setting in numeric.every_numeric_setting(machine, own["draws"], seed, generated=False):
        make = partial(_few_shot, setup.asker, contexts, setting)
        ask = partial(ask_under, setting=setting, copies=copies)
        planned.append((setting, Unit(range(points), len(contexts), make, ask)))
    if not model.causal and model.block is None:
        for asked in _fitting(setup):
            for setting in numeric.every_numeric_setting(machine, own["generation_draws"], seed, generated=True):
                condition: Condition = {"answers": GENERATIONS, "setting": setting.name}
                items = canvas_items(setup.asker, NAME, asked, CanvasLayout(own["canvas"]), condition)
                write = partial(write_under, setting=setting, copies=copies, asked=asked, steps=own["steps"])
                planned.append((setting, Unit(range(len(asked.questions)), 1, items, write, DECODING_COST)))
    # One copy of the model at a time: all that is asked in a dtype, then the next.
    planned.sort(key=lambda one: (one[0].dtype != numeric.FLOAT32, one[0].dtype, one[0].compiled))
    yield from (unit for _, unit in planned)


def _few_shot(
    asker: Asker,
    contexts: Sequence[Callable[[int], Episode]],
    setting: NumericSetting,
    points: Sequence[int],
    done: Collection[Key],
) -> Iterator[Item]:
    """All tasks in one unit, so that a full batch holds questions of all of them."""
    variant = Variant(NAME, {"answers": ONE_PASS, "setting": setting.name}, open=True, masks=2)
    for context in contexts:
        yield from few_shot_items(asker, context, [variant], points, done)


def _fitting(setup: Setup) -> Iterator[AskedSet]:
    for asked in asked_sets(setup):
        if asked.longest + setup.own["canvas"] <= setup.model.window:
            yield asked
        else:
            setup.note(f"{NAME}: no room for {setup.own['canvas']} tokens after the prompts of {asked.name}")


def baseline(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    same = [other for other in conditions if other["answers"] == condition["answers"]]
    wanted = numeric.compared_with(str(condition["setting"]), frozenset(str(other["setting"]) for other in same))
    return next((other for other in same if other["setting"] == wanted), None)


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """An answer of many tokens has no one confidence; of one-pass answers the accuracy is what counts here."""
    return [entry.changed(confidence=UNSET, entropy=UNSET)]


def _found(summary: Summary) -> NumericsSummary | None:
    return summary.extras.get(NAME)


def _settings_points(shown: Shown) -> list[Point]:
    """One-pass answers at each name, generations right of them."""
    found, points = _found(shown.summary), []
    for one in (one for one in (found.flips if found is not None else ()) if one.setting in SINGLE):
        x = SINGLE.index(one.setting) + (0.25 if one.answers == GENERATIONS else 0.0)
        condition: Condition = {"answers": one.answers, "setting": one.setting}
        ends = one.flipped_low, one.flipped_high
        points.append(Point(one.answers, x, _share(condition, one.flipped, one.n, *ends)))
    return points


def _margin_points(shown: Shown) -> list[Point]:
    found, points = _found(shown.summary), []
    for dtype, bins in found.margins.items() if found is not None else ():
        for one in bins:
            place = (0.0, *EDGES).index(one.low)
            entry = _share({"dtype": dtype, "margin": RANGES[place]}, one.flipped, one.n)
            points.append(Point(dtype, place + (0.25 if dtype == FLOAT16 else 0.0), entry))
    return points


def _share(condition: Condition, flipped: int, n: int, low: float | None = None, high: float | None = None) -> Entry:
    return drawn_entry(condition, n, {"flipped": flipped / n, "flipped_low": low, "flipped_high": high})


def in_words(shown: Shown) -> list[str]:
    """What two runs may differ by, what changed with --deterministic, in float32, in half precision, and what to do."""
    found = _found(shown.summary)
    if found is None:
        return ["numerical noise is not known: the run is unfinished"]
    half = [name for name in (BFLOAT16, FLOAT16, numeric.WEIGHTS) if any(one.setting == name for one in found.flips)]
    return [
        _headline(found),
        *map(_noise_line, found.noise),
        *_counts(found, (numeric.REPEATED,), "--deterministic, asked twice in opposite orders"),
        *_counts(found, (numeric.AGAIN,), IN_WORDS[numeric.AGAIN]),
        *_float32_lines(found),
        *(line for name in half for line in _counts(found, (name,), f"{IN_WORDS[name]} instead of float32")),
        *_advice(found),
    ]


def _headline(found: NumericsSummary) -> str:
    """`up to 2 of 32 one-pass answers changed (differences below 12.5 points may be noise) and ...`"""
    parts, noise = [], {one.answers: one for one in found.noise}
    for answers, words in KINDS.items():
        own = [one for one in found.flips if one.answers == answers and one.setting in SINGLE]
        if own:
            most = max(own, key=lambda one: one.flipped)
            bound = noise[answers].below_high if answers in noise else 100.0
            may = "too few to say" if bound >= 100 else f"differences below {tenths(bound)} points may be noise"
            may = may if bound >= 100 or most.flipped else f"noise of up to {tenths(bound)} points cannot be ruled out"
            parts.append(f"{'up to ' if most.flipped else ''}{most.flipped} of {most.n} {words} changed ({may})")
    emulated = any(numeric.EMULATED in one.dtype for one in found.noise)
    return " and ".join(parts) + (" with half precision emulated on a CPU" if emulated else "")


def _noise_line(one: RunNoise) -> str:
    asked, where = f"{one.n} {KINDS[one.answers]}", numeric.where_run(one.dtype)
    if one.below_high >= 100:
        return f"{asked} are too few to bound numerical noise {where}"
    bound = f"noise of up to {tenths(one.below_high)} points between two runs cannot be ruled out"
    if one.unstable:
        bound = f"differences below {tenths(one.below_high)} points between two runs are within numerical noise"
    return (
        f"{one.unstable or 'none'} of {asked} flipped between right and wrong in the {one.draws} runs {where}, which "
        f"differ in order, batches and attention; {bound} (95 % upper bound)"
    )


def _counts(found: NumericsSummary, settings: Sequence[str], what: str) -> list[str]:
    """`what: 2 of 48 one-pass answers changed (1 became right, 0 wrong; margins up to 0.2 logits), 0 of 8 ...`"""
    parts = []
    for answers in (ONE_PASS, GENERATIONS):
        own = [one for one in found.flips if one.answers == answers and one.setting in settings]
        if not own:
            continue
        names = ("flipped", "gained", "lost", "n")
        flipped, gained, lost, n = (sum(getattr(one, name) for one in own) for name in names)
        margins = [one.margin for one in own if one.margin is not None]
        below = f"; margins up to {max(margins):.2g} logits" if margins else ""
        detail = f" ({gained} became right, {lost} wrong, net {gained - lost:+d}{below})" if flipped else ""
        parts.append(f"{flipped} of {n} {KINDS[answers]} changed{detail}")
    return [f"{what}: {', '.join(parts)}"] if parts else []


def _float32_lines(found: NumericsSummary) -> list[str]:
    own = [one for one in found.flips if one.setting in numeric.SUMS_ONLY]
    flipped, ties = sum(one.flipped for one in own), sum(one.ties for one in own)
    names = ", ".join(dict.fromkeys(IN_WORDS[one.setting] for one in own))
    lines = _counts(found, numeric.SUMS_ONLY, f"float32, {names}")
    if flipped and lines:
        lines[0] += f"; {'all' if ties == flipped else f'{ties} of {flipped}'} of them ties within rounding"
    return lines


def _advice(found: NumericsSummary) -> list[str]:
    bounded = [one for one in found.noise if one.below_high < 100]
    more = f"--probes {NAME} --points N asks N or more one-pass answers and N generations"
    few = " and ".join(f"{one.n} {KINDS[one.answers]}" for one in found.noise if one.below_high >= 100)
    lower = f"{few} are too few for a limit: {more}; with N = 32, if none flips, it is 12.5 points" if few else more
    if not bounded:
        return [f"what to do: ask more questions. {lower}"]
    limits = " and ".join(f"{tenths(one.below_high)} points with {one.n} {KINDS[one.answers]}" for one in bounded)
    repeated = [one.flipped for one in found.flips if one.setting == numeric.REPEATED]
    same = "it gave the same answers in another order, which need not be those of float32"
    exact = f". To compare answer by answer, use --deterministic: {same}" if repeated and not any(repeated) else ""
    return [f"what to do: do not attribute a difference below {limits} to the model or a setting. {lower}{exact}"]


def _tables(summary: Summary) -> list[TextTable]:
    found = _found(summary)
    if found is None:
        return []
    head = ("setting", "n", "changed", "right", "wrong", "margin below")
    rows = []
    for one in found.flips:
        name, margin = (
            IN_WORDS.get(one.setting, "--deterministic repeated"),
            "-" if one.margin is None else f"{one.margin:.2g}",
        )
        counts = str(one.n), str(one.flipped), f"+{one.gained}", f"-{one.lost}"
        rows.append((f"{one.answers}, {name}", *counts, margin))
    return [TextTable(f"{NAME}: answers that changed, compared with float32", head, rows)]


def _margin_lines(shown: Shown) -> list[str]:
    found = _found(shown.summary)
    lines, safe, unseen = [], 0.0, 0.0
    for dtype, bins in found.margins.items() if found is not None else ():
        changed = [one for one in bins if one.flipped]
        if not changed:
            lines.append(f"{dtype}: 0 of {sum(one.n for one in bins)} answers changed; {_least_margin(bins)}")
            unseen = bins[0].low
            continue
        most = changed[-1]
        safe = max(safe, most.high or float("inf"))
        larger = sum(one.n for one in bins if one.low > most.low)
        above = "" if most.high is None else f"; 0 of the {larger} with a margin above {most.high:g} logits"
        lines.append(
            f"{dtype}: {sum(one.flipped for one in changed)} of {sum(one.n for one in bins)} answers changed{above}"
        )
    if not lines:
        return ["not run"]
    do = "ask one-pass answers with margins like these in half precision; generations are not covered"
    if unseen:
        do += f". No answer had a margin below {unseen:g} logits, so where rounding starts to matter was not seen"
    if safe:
        limit = "" if safe == float("inf") else f" with a margin below {safe:g} logits"
        do = f"ask again in float32 what decides a comparison: answers{limit} may change with the dtype"
    return [*lines, f"what to do: {do}"]


def _least_margin(bins: Sequence[MarginBin]) -> str:
    return f"every margin is above {bins[0].low:g} logits" if bins[0].low else "some margins are below 0.03 logits"


changed_answers = partial(Section, measures=(as_share("flipped", "Answers that changed"),))

PROBE = Probe(
    name=NAME,
    group="evidence",
    about="answers that change with batch, order, dtype, attention or cache",
    condition={"answers": str, "setting": str},
    evidence={"dtype": str, "margin": float | UnsetType, "scale": float | UnsetType},
    units=units,
    takes=lambda data_set: data_set in CHECKED,
    parameters={
        "points": 2,
        "distractors": 3,
        "draws": 4,
        "questions": 4,
        "canvas": 64,
        "steps": 8,
        "generation_draws": 2,
    },
    quick={"draws": 3, "questions": 3, "canvas": 16, "steps": 4},
    baseline=baseline,
    measures=measures,
    chance=None,
    extras={NAME: numerics_summary},
    columns={"accuracy": "accuracy"},
    tables=_tables,
    sections=(
        changed_answers(
            title="How much of a difference is numerical noise?",
            question="The same questions are asked under settings that should not matter: batch, order, dtype, "
            "attention, cache. How many answers change, and how far does the accuracy of two runs differ by that?",
            paper="Not in the paper. Related: arXiv 2604.13413.",
            how_to_read="Each point is the share of answers that differ from those of the float32 reference when one "
            "setting changes; 0 % is what one would hope for. A one-pass answer is a letter predicted in one "
            "forward pass; a generation is a text decoded in several. batch: one at a time; ord: reversed order; att: "
            "plain attention; kv: cache (generations only); jit: compiled layers; w: --weights; again: the same "
            "requests to a server. A setting without a point was not measured. Whisker: the share of answers that "
            "change (of 0: one-sided); the limit in points is of the accuracy of two runs. Emulated half precision: "
            "weights and results are rounded, sums are float32.",
            x_label="The one setting that differs",
            x_names=("batch", "ord", "att", "kv", "jit", "bf16", "fp16", "w", "again"),  # for a narrow page
            points=_settings_points,
            caption="Share of all questions; whisker: 95 % interval over questions.",
            says=in_words,
            masks=lambda shown: "masks: 2 after a question, or the canvas of a generation",
        ),
        changed_answers(
            name="margins",
            title="Which answers change in half precision?",
            question="One-pass answers by their margin in float32: the best logit less the second. Rounding can "
            "change only answers with a small margin.",
            how_to_read="Where points fall to 0 % at the right, answers above that margin did not change in that "
            "dtype. Where all points are at 0 %, no such margin was found.",
            x_label="Margin in float32 (logits)",
            at="a margin of {}",
            x_names=RANGES,
            points=_margin_points,
            caption="Share of the one-pass answers in each range of margins.",
            says=_margin_lines,
            masks=lambda shown: "masks: 2 after a question",
        ),
    ),
)
