"""The page is whole, needs nothing but itself, says the right numbers and escapes what it did not write."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from helpers.page_reader import Reader, read
from helpers.report_runs import AUTOREGRESSIVE, DIFFUSION, KNOWN, Asked, position_probes, write_run
from maskwise.models.checkpoints.locations import planted_in
from maskwise.report.pages.jinja_environment import whole_names
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.support.errors import UserError

HOSTILE = "<script>alert('x')</script>&\"quoted\" $\\frac{ {{ 7*7 }} [red]\x07\n日本"


def write_report(folders: list[Path], out: Path) -> Path:
    return write_page(read_all(folders), out)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the run of known numbers."""
    folder = write_run(tmp_path_factory.mktemp("known") / "run")
    return write_report([folder], folder.parent / "page")


def only(*probes: str) -> list[Asked]:
    return [asked for asked in KNOWN if asked[0] in probes]


def draw(tmp_path: Path, *folders: Path) -> Reader:
    return read(write_report(list(folders), tmp_path / "page"))


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


def test_a_planted_fault_is_named_in_plain_words(tmp_path: Path) -> None:
    model = DIFFUSION | {"planted": planted_in("tiny-llada+distracted+ma")}
    words = draw(tmp_path, write_run(tmp_path / "run", only("mask-count"), model)).words
    assert "float32 · planted on purpose: sensitivity to appended masks, later reduced by tuning" in words


def test_a_section_has_all_its_parts(known: Path) -> None:
    reader = read(known)
    section = reader.words[reader.words.index("Do appended masks change the answer? The same question") :]
    section = section[: section.index("Is it the masks, or just more text?")]
    for part in (
        "LLaDA-Base loses 23 points",
        "holds: appended masks lower the accuracy (2 masks less 100: 30.0 points, 14.5 to 45.5; 0.00 nats)",
        "−30.0 points (−45.2 to −16.2) 0.00 nats",
        "A level line is what one would hope for",
        "4 tasks with 10 test points each; masks: 2, 100.",
        "The numbers behind the figure",
        "2 40 80.0 %",
        "100 40 50.0 %",
        "guessing (33 %)",
    ):
        assert part in section, part


def test_a_section_without_a_baseline_is_headed_by_what_it_shows_first(tmp_path: Path) -> None:
    page = write_report(
        [write_run(tmp_path / "run", [*only("mask-count"), ("new-probe", {"x": 1}, 1, [5])])], tmp_path / "page"
    ).read_text(encoding="utf-8")
    assert re.search(
        r">Accuracy: 50.0\s%[^<]*</h2>.*?<p class=\"question\"><strong>New probe</strong>", page, re.DOTALL
    )


@pytest.mark.slow
def test_what_was_not_detected_is_grey(tmp_path: Path) -> None:
    """A number of the finding and the tile of a score; in a comparison the score's cell."""
    asked = [*only("mask-count"), *locations(9, 9)]
    folder = write_run(tmp_path / "run", asked)
    reader = draw(tmp_path, folder)
    assert re.search(r"Locality 0 % nothing detected: at most [\d.]+ %; 95 % interval", reader.words)
    assert [attrs["class"] for _, attrs in reader.tags if "undetected" in (attrs.get("class") or "")] == [
        "undetected",
        "tile undetected",
    ]
    page = write_report([folder, write_run(tmp_path / "b", asked)], tmp_path / "two").read_text(encoding="utf-8")
    assert '<td class="undetected" data-model="lab/tiny-llada (run)"><b>0\u00a0%</b>' in page


def test_drawing_again_gives_the_same_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", only("filler"))
    first = write_report([folder], tmp_path / "one").read_bytes()
    assert write_report([folder], tmp_path / "two").read_bytes() == first


def test_a_hostile_name_stays_a_name(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        [*only("mask-count"), ("filler", {"filler": HOSTILE, "fillers": 5}, 1, [1, 2, 3, 4])],
        model=DIFFUSION | {"name": HOSTILE, "kind": HOSTILE},
        notes=[HOSTILE],
        task=HOSTILE,
        words=HOSTILE,
    )
    path = write_report([folder, write_run(tmp_path / "b", only("mask-count"))], tmp_path / "page")
    page = path.read_text(encoding="utf-8")
    assert "<script" not in page and "49" not in re.findall(r"<h1>.*?</h1>", page, re.DOTALL)[0]
    assert "&lt;script&gt;alert(" in page
    assert HOSTILE.split()[0] in Reader(page).words
    for svg in (tmp_path / "page" / "figures").glob("*.svg"):
        ElementTree.parse(svg)


def test_a_name_in_a_heading_is_not_broken_at_its_hyphens() -> None:
    shown = whole_names("tiny-llada, <x> or (--chat) alone")
    assert shown == '<span class="whole">tiny-llada,</span> &lt;x&gt; or (<span class="word">--chat</span>) alone'


def test_models_stand_side_by_side(tmp_path: Path) -> None:
    better = position_probes([10, 10, 10, 9], [10, 9, 10, 10])
    reader = draw(
        tmp_path,
        write_run(tmp_path / "a", only("location", "mask-count")),
        write_run(tmp_path / "b", better[:2], model=AUTOREGRESSIVE, notes=["mask-count was not run: no masks"]),
    )
    words = reader.words
    assert "Side by side: tiny-llada, tiny-qwen" in words
    scores = words[words.index("Scores side by side") :]
    assert re.search(r"Mask tax .* 64 % 95 % interval .* – does not apply: no masks .*Degradation", scores)
    assert "Not applicable: it has no masks. It is an autoregressive model" in words
    assert "tiny-qwen: not run." in words
    mask_figure = (tmp_path / "page" / "figures" / "mask-count.svg").read_text(encoding="utf-8")
    assert "tiny-llada" in mask_figure and "tiny-qwen" not in mask_figure
    assert "tiny-qwen: mask-count was not run: no masks" in words
    assert "Not quite alike" not in words


@pytest.mark.slow
def test_models_that_were_not_asked_alike_say_so_side_by_side(tmp_path: Path) -> None:
    """A block diffusion model sees fewer masks: claims name each model's own, and rows of scores what differs."""

    def masks(most: int) -> list[Asked]:
        return [("mask-count", {"masks": k}, k, [right] * 4) for k, right in ((2, 8), (20, 7), (most, 5))]

    block = DIFFUSION | {"name": "lab/blocks", "block": 32}
    blocks = write_run(tmp_path / "a", masks(32), model=block)
    words = draw(tmp_path, blocks, write_run(tmp_path / "b", masks(200))).words
    claim = r"appended masks lower the accuracy: blocks \(2 masks less 32\) [^:]*: \w[^;]*; "
    assert re.search(claim + r"tiny-llada \(2 masks less 200\) ", words)
    scores = words[words.index("Scores side by side") :]
    for name in ("Mask tax", "Degradation"):
        assert (
            "Not asked alike: masks 2, 20, 32 (blocks); 2, 20, 200 (tiny-llada)" in scores[scores.index(name) :][:400]
        )
    assert "(k = " not in scores[scores.index("Degradation") :][:400]
    same = write_run(tmp_path / "c", masks(32), model=block | {"name": "lab/same"})
    alike = draw(tmp_path, blocks, same).words
    assert "Not asked alike" not in alike and "(k = 2, 20, 32)" in alike[alike.index("Scores side by side") :]
    assert "appended masks lower the accuracy (2 masks less 32): blocks" in alike


def test_two_runs_of_one_model_are_distinguished(tmp_path: Path) -> None:
    words = draw(
        tmp_path,
        write_run(tmp_path / "before", only("location")),
        write_run(tmp_path / "after", only("location"), seed=1),
    ).words
    assert "Side by side: lab/tiny-llada (before), lab/tiny-llada (after)" in words
    assert "These runs differ in seed;" in words


def test_a_folder_named_twice_is_shown_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", only("location"))
    assert "Side by side" not in draw(tmp_path, folder, tmp_path / "run" / ".." / "run").words


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    words = draw(tmp_path, write_run(tmp_path / "run", only("location"), complete=False)).words
    assert "Unfinished run." in words and "Not yet: the run is unfinished." in words


def test_scores_of_probes_that_were_not_run_are_left_out(tmp_path: Path) -> None:
    words = draw(tmp_path, write_run(tmp_path / "run", only("mask-count"))).words
    assert "Mask tax 64 %" in words and "ocality" not in words and "ot measured" not in words
    words = draw(tmp_path, write_run(tmp_path / "other", only("location"))).words
    assert "Locality 53 %" in words and "Mask tax" not in words and "ot measured" not in words


@pytest.mark.slow
def test_the_command_that_measured_stands_on_the_page(tmp_path: Path) -> None:
    command = "maskwise diagnose 'my model' --quick --questions 10 --dtype float32"
    folder = write_run(tmp_path / "run", command=command)
    page = (write_report([folder], tmp_path / "page")).read_text(encoding="utf-8")
    code = re.search(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)[1]
    assert '<span class="word">--dtype</span> <span class="word">float32</span>' in code  # never broken at its hyphens
    assert html.unescape(re.sub("<[^>]+>", "", code)).strip() == command
    assert "Measured by:" not in draw(tmp_path, write_run(tmp_path / "from Python", command=None)).words


@pytest.mark.slow
def test_what_cannot_be_read_or_written_is_one_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"manifest\.json"):
        write_report([tmp_path / "empty"], tmp_path / "page")
    no_records = write_run(tmp_path / "none")
    (no_records / "records.jsonl").write_text("")
    with pytest.raises(UserError, match="holds no records"):
        write_report([folder, no_records], tmp_path / "page")
    broken = write_run(tmp_path / "broken")
    lines = (broken / "records.jsonl").read_text().split("\n")
    (broken / "records.jsonl").write_text("\n".join([*lines[:4], lines[4][:-9], *lines[5:]]))
    with pytest.raises(UserError, match="line 5"):
        write_report([broken], tmp_path / "page")
    with pytest.raises(UserError, match="no run folder"):
        write_report([], tmp_path / "page")
    assert not (tmp_path / "page").exists()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="name another folder with out"):
        write_report([folder], tmp_path / "file")


def locations(near: int, far: int, **more: int) -> list[Asked]:
    return [("location", {"location": at, **more}, 1, [right] * 4) for at, right in ((15, near), (0, far))]


def test_a_figure_without_points_is_drawn_empty_side_by_side(tmp_path: Path) -> None:
    asked = [("shots-masks", {"shots": 5, "extra masks": 1}, 2, [1]), *only("location")]
    words = draw(tmp_path, write_run(tmp_path / "a", asked), write_run(tmp_path / "b", asked)).words
    assert "Do tasks that need more examples suffer more from masks?" in words
