"""The page is whole, needs nothing but itself, shows the run's numbers and escapes what it did not write."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import maskwise as mw
from helpers.contrast import contrast
from helpers.page_reader import Reader, read
from helpers.report_runs import AUTOREGRESSIVE, DIFFUSION, GUESSING, KNOWN, Asked, mask_probes, write_run
from maskwise.models.checkpoints.locations import planted_in
from maskwise.records.sample import write_sample
from maskwise.report.card import card_of
from maskwise.report.chart import COLOURS, DASHES, MARKERS, VARIABLES, minus
from maskwise.report.measured import labels_of
from maskwise.report.page import HERE, differing_settings, first_screen, home_of, write_page
from maskwise.report.section import rows_of
from maskwise.support.errors import UserError

HOSTILE = "</div><script>alert('x')</script>&\"quoted\" $\\frac{ {{ 7*7 }} [red]\x07\n日本\u202e<img src=x onerror=y>"
MASKS = mask_probes([8, 9, 7, 8], [5, 6, 4, 5])[:2]
PROMPT = {
    "probe": "mask-count",
    "task": HOSTILE,
    "point": 3,
    "condition": {"masks": 100, HOSTILE: HOSTILE},
    "answer": "A",
    "correct": False,
    "tokens": [HOSTILE, "Answer", ":[", *["<mask>"] * 100],
    "row": 3,
    "top": [["B", 0.75], [HOSTILE, 0.2], ["A", 0.0001]],
    "probability": 0.0001,
}


def page_of(out: Path, *folders: Path) -> Reader:
    return read(write_page([mw.read_run(folder) for folder in folders], out))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the run of known numbers, with a prompt."""
    folder = write_run(tmp_path_factory.mktemp("known") / "run")
    write_sample(folder, [PROMPT])
    return mw.read_run(folder).report()


def only(*probes: str) -> list[Asked]:
    return [asked for asked in KNOWN if asked[0] in probes]


def test_the_page_stands_alone(known: Path) -> None:
    page = known.read_text(encoding="utf-8")
    reader = Reader(page)
    assert known.name == "report.html"
    assert not re.search(r"(https?:)?//\w", page.replace("http://www.w3.org", "")), "the page reaches for something"
    assert not [tag for tag, _ in reader.tags if tag in ("script", "link", "img", "iframe")]
    assert "@import" not in page and "url(http" not in page


def test_ids_are_unique_and_every_reference_arrives(known: Path) -> None:
    reader = read(known)
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    links = [link for name in ("href", "xlink:href", "aria-labelledby") for link in reader.values(name)]
    styles = re.findall(r"url\(#([^)]+)\)", " ".join(reader.values("style") + reader.values("clip-path")))
    assert {link.removeprefix("#") for link in links} | set(styles) <= set(ids)


def test_screen_readers_get_headings_in_order_names_of_drawings_and_heads_of_columns(known: Path) -> None:
    reader = read(known)
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1 and all(after <= before + 1 for before, after in pairwise(levels))
    drawings = [attrs for tag, attrs in reader.tags if tag == "svg"]
    assert drawings and all(attrs["role"] == "img" and attrs["aria-label"] for attrs in drawings)
    assert all(attrs.get("scope") for tag, attrs in reader.tags if tag == "th" and attrs)
    scrolled = [attrs for _, attrs in reader.tags if attrs.get("tabindex") == "0"]
    assert scrolled and all(attrs["role"] == "region" and attrs["aria-label"] for attrs in scrolled)
    assert reader.values("lang") == ["en"]


def test_a_section_has_the_estimates_and_tables_of_its_probe(known: Path) -> None:
    """Accuracy 80 % with two masks, 50 % with a hundred."""
    words, run = read(known).words, mw.read_run(known.parent)
    assert run.screen.rows["masks"].change.value == pytest.approx(-0.3)
    for probe, found in run.measured.items():
        assert f'id="{probe}"' in known.read_text(encoding="utf-8")
        for one in found:
            assert minus(str(one)) in words, one.name
    figure, table = run._drawn["mask-count"]
    heads, rows = rows_of(figure, table)
    right = [row[heads.index("value")].partition(" (")[0] for row in rows if row[0] == "accuracy"]
    assert all(heads) and right == ["80.0 %", "50.0 %"]
    assert all(minus(cell) in words for row in rows for cell in row)


def test_drawing_again_gives_the_same_page(tmp_path: Path) -> None:
    run = mw.read_run(write_run(tmp_path / "run", only("filler")))
    assert run.report(tmp_path / "one").read_bytes() == run.report(tmp_path / "two").read_bytes()
    assert {file.name for file in (tmp_path / "one" / "figures").iterdir()} == {"filler.svg", "filler.png"}


@pytest.mark.slow
def test_a_hostile_name_stays_a_name(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        [*MASKS, ("filler", {"filler": HOSTILE, "fillers": 5, "format": "B"}, 1, [1, 2, 3, 4])],
        model=DIFFUSION | {"name": HOSTILE, "kind": HOSTILE, "planted": HOSTILE, "tuned": HOSTILE},
        notes=[HOSTILE],
        task=HOSTILE,
        words=HOSTILE,
        command=HOSTILE,
    )
    write_sample(folder, [PROMPT, PROMPT | {"condition": {"masks": 2}, "correct": True}])
    runs = [mw.read_run(folder), mw.read_run(write_run(tmp_path / "b", MASKS))]
    for shown, together in (("one", runs[:1]), ("two", runs)):
        page = write_page(together, tmp_path / shown).read_text(encoding="utf-8")
        reader = Reader(page)  # every tag that was opened is closed
        assert not re.search("<(script|img)", page) and "&lt;script&gt;alert(" in page
        assert "{{ 7*7 }}" in reader.words and not [
            name for _, attrs in reader.tags for name in attrs if name == "onerror"
        ]
        for svg in (tmp_path / shown / "figures").glob("*.svg"):
            ElementTree.parse(svg)
    card = card_of(runs[0])
    text, _, command = card.rpartition("\n\n    ")
    assert not re.search(r"(?<!\\)[<>\[\]`]", text) and not re.search("[\x07\u202e]", card) and "\n" not in command[:-1]
    assert "<script" not in first_screen(runs).replace("&lt;", "")


def test_a_prompt_is_shown_with_its_answers(known: Path) -> None:
    page = known.read_text(encoding="utf-8")
    words = Reader(page).words
    assert re.search(r"<mark[^>]*>&lt;mask&gt;</mark><b>&lt;mask&gt; × 99</b>", page)  # the answer's, and the others
    assert "B 75.0 %" in words and "A (right) 0.0 %" in words and "103 tokens" in words


def test_an_autoregressive_prompt_ends_in_the_answer_s_place_and_attribution_colours_tokens(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", MASKS)
    ends = PROMPT | {"tokens": ["Answer", ":["], "row": 2}
    coloured = PROMPT | {"tokens": ["near", "far", "<mask>"], "row": 2, "attribution": [1.0, 0.26, 0.0]}
    write_sample(folder, [ends, coloured])
    page = mw.read_run(folder).report().read_text(encoding="utf-8")
    assert re.search(r":\[(</i>)?<mark[^>]*>the answer</mark></div>", page)
    assert '<i class="w" style="--w: 50%">near</i><i class="w" style="--w: 13%">far</i><mark' in page


def test_models_stand_on_one_page_each_with_what_it_was_asked(tmp_path: Path) -> None:
    near, far = [("contrast", {"examples": at, "masks": 0}, 0, [30] * 4) for at in ("near", "far")]
    folders = [
        write_run(tmp_path / "a", [*only("location"), *MASKS]),
        write_run(tmp_path / "b", [near, far], model=AUTOREGRESSIVE, notes=["mask-count was not run: no masks"]),
    ]
    reader = page_of(tmp_path / "page", *folders)
    assert "tiny-llada, tiny-qwen" in reader.words and "tiny-qwen: mask-count was not run: no masks" in reader.words
    for probe, shown in (("mask-count", {"tiny-llada"}), ("contrast", {"tiny-qwen"})):
        drawn = (tmp_path / "page" / "figures" / f"{probe}.svg").read_text(encoding="utf-8")
        assert {name for name in ("tiny-llada", "tiny-qwen") if name in drawn} <= shown
    runs = [mw.read_run(folder) for folder in folders]
    assert [run.screen.lead for run in runs] == ["masks", "distance"] and differing_settings(runs) == []


@pytest.mark.slow
def test_two_runs_of_one_model_are_told_apart(tmp_path: Path) -> None:
    runs = [mw.read_run(write_run(tmp_path / name, MASKS, seed=seed)) for name, seed in (("before", 0), ("after", 1))]
    assert labels_of(runs) == ["lab/tiny-llada (before)", "lab/tiny-llada (after)"]
    assert differing_settings(runs) == ["seed"] and home_of(runs) != home_of(runs[::-1])
    words = read(write_page(runs, tmp_path / "page")).words
    assert all(label in words for label in labels_of(runs)) and "differ in seed" in words


def test_an_unfinished_or_planted_run_says_so(tmp_path: Path) -> None:
    model = DIFFUSION | {"planted": planted_in("tiny-llada+distracted+ma")}
    words = page_of(tmp_path / "page", write_run(tmp_path / "run", MASKS, model, complete=False)).words
    assert "Unfinished run." in words and f"planted on purpose: {model['planted']}" in words
    card = card_of(mw.read_run(tmp_path / "run"))
    assert "unfinished" in card and "Planted" in card
    assert "Unfinished" not in page_of(tmp_path / "other", write_run(tmp_path / "whole", MASKS)).words


def test_a_guessing_model_is_not_called_healthy(tmp_path: Path) -> None:
    run = mw.read_run(write_run(tmp_path / "run", GUESSING))
    assert run.screen.verdicts["masks"].why == "guessing"
    for shown in (read(run.report()).words, str(run), card_of(run), run.finding, run._repr_html_()):
        assert "guess" in shown and "none detected" not in shown


def test_what_cannot_be_read_or_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no records"):
        no_records = write_run(tmp_path / "none", MASKS)
        (no_records / "records.jsonl").write_text("")
        page_of(tmp_path / "page", write_run(tmp_path / "run", MASKS), no_records)
    (tmp_path / "run" / "sample.json").write_text("[1]")
    with pytest.raises(UserError, match="prompt 1: it: expected object, got int"):
        page_of(tmp_path / "page", tmp_path / "run")
    assert not (tmp_path / "page").exists()
    (tmp_path / "run" / "sample.json").unlink()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="name another folder with out"):
        page_of(tmp_path / "file", tmp_path / "run")


# Colours


def test_every_colour_of_a_figure_has_a_light_and_a_dark_value() -> None:
    css = (HERE / "page.css").read_text(encoding="utf-8")
    for colour, variable in VARIABLES.items():
        light, dark = re.findall(rf"{variable}: (#[0-9a-f]{{6}});", css)
        assert light == colour != dark
    assert len(set(MARKERS)) == len(COLOURS) == len(MARKERS) == len(DASHES)  # lines differ in more than colour


def mixed(colour: str, paper: str, share: float) -> str:
    channels = [(int(colour[i : i + 2], 16), int(paper[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * over + (1 - share) * under):02x}" for over, under in channels)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_can_be_read(mode: str) -> None:
    """WCAG AA, 4.5 : 1, of text on what lies under it, the colours of attribution at their strongest."""
    css = (HERE / "page.css").read_text(encoding="utf-8")
    parts = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in css.split("@media")]
    colours = parts[0] if mode == "light" else parts[0] | parts[1]
    pairs = [(ink, paper) for ink in ("ink", "soft") for paper in ("paper", "card")]
    pairs += [(name, "paper") for name in colours if name.startswith("curve-")]
    pairs += [("ink", "mark"), ("ink", "grid"), ("faint", "paper")]
    found = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    found["attribution", ""] = contrast(colours["ink"], mixed(colours["curve-1"], colours["card"], 0.5))
    assert {pair: round(ratio, 2) for pair, ratio in found.items() if ratio < 4.5} == {}
