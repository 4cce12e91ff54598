"""The comparison of mitigations, on models whose weakness is known and against plain decoding."""

import html
import json
import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from msgspec import UNSET
from rich.console import Console
from scipy import stats
from transformers import PretrainedConfig
from typer.testing import CliRunner

from helpers.known import TASK_NAMES, distracted, known_model, known_path, shipped_tokenizer
from helpers.outputs import problem_of_output
from helpers.tiny import tiny_ar, tiny_llada, tiny_sdar
from maskwise.cli import app
from maskwise.cli.outputs import OUTPUTS
from maskwise.decoding.generate import generate
from maskwise.experiments import mitigations
from maskwise.experiments.first_answers import (
    MASKS,
    BothEnds,
    Marked,
    PreparedQuestion,
    Remembering,
    answer,
    biased_answers,
    first_tokens,
    with_both_ends,
)
from maskwise.experiments.mitigations import (
    Exam,
    asked,
    compare_mitigations,
    for_blocks,
    model_for,
    passes_over_blocks,
    rows_for,
)
from maskwise.experiments.tuned_adapters import PAPER_LOSS, TunedAdapter, method_of, with_method
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.report.pages.mitigations_page import cures_result, frontier, what_it_shows
from maskwise.scoring.changes import NatsDifference, recovered_share
from maskwise.scoring.experiment_results import Accuracy, MitigationResult, Mitigations
from maskwise.scoring.scores import Score
from maskwise.scoring.skill import task_skill
from maskwise.support.errors import UserError
from maskwise.support.typed import convert
from maskwise.tasks.episodes import draw, mixed
from maskwise.tasks.prompts import encode_question
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words
from maskwise.training.training_settings import TuneSettings, described

WITHOUT_ADAPTER = rows_for([])
BY_NAME = {one.name: one for one in WITHOUT_ADAPTER}


def small_llada(seed=0):
    tokenizer = shipped_tokenizer()
    return tiny_llada(
        seed, tokenizer=tokenizer, vocab=len(tokenizer), window=1200, mask_token_id=tokenizer.mask_token_id
    )


def tokens(model, prompts, options):
    return [one.token for one in first_tokens(model, prompts, options, MASKS)]


@pytest.mark.parametrize("mitigation", WITHOUT_ADAPTER, ids=lambda one: one.name)
def test_leaving_early_reads_what_the_whole_decoding_would_have_written(mitigation):
    model = small_llada()
    prompts = [[5, 6, 7, 8], [9, 10, 11]]
    whole = generate(model, prompts, MASKS, **mitigation.options)
    assert tokens(model, prompts, mitigation.options) == [one.ids[0] for one in whole]
    assert MASKS / whole[0].forwards == mitigation.tokens_per_pass


def test_the_likelihood_is_that_of_the_right_answer_in_the_step_that_commits_it():
    """In one step that of a plain prediction; in several that of the canvas before the step."""
    model, prompts, right = small_llada(), [[5, 6, 7, 8], [9, 10, 11]], 12
    questions = [PreparedQuestion("t", point, tuple(prompt), right) for point, prompt in enumerate(prompts)]

    def plain(prompt, canvas):
        (logits,) = model.predict([[*prompt, *canvas]], [[len(prompt)]])
        return -logits[0].double().log_softmax(-1)[right].item()

    for masks in (2, MASKS):
        found = answer(model, questions, {"steps": 1}, masks)
        assert [one.nll for one in found] == pytest.approx(
            [plain(prompt, [model.mask_id] * masks) for prompt in prompts], abs=1e-4
        )
    before = []  # the canvas that the committing step saw, from a decoding of one prompt alone
    steps = BY_NAME["40-step unmasking"].options
    generate(model, prompts[:1], MASKS, on_step=lambda seen: before.append(list(seen.canvases[0][4:])), **steps)
    committed = next(step for step, canvas in enumerate(before) if canvas[0] != model.mask_id)
    seen = before[committed - 1] if committed else [model.mask_id] * MASKS
    assert answer(model, questions[:1], steps, MASKS)[0].nll == pytest.approx(plain(prompts[0], seen), abs=1e-4)


def test_likelihoods_at_both_ends_are_paired_with_the_baseline():
    """Ten questions; 200 masks cost 2 nats, of which the adapter takes back 1.5, more or less by turns."""

    def answers(nll):
        return [Marked("t", point, point < 6, None if nll is None else nll(point)) for point in range(10)]

    found = BothEnds(
        {None: answers(lambda point: 0.5), 0: answers(lambda point: 0.6)},
        {
            "baseline": answers(lambda point: 2.5),
            "tuned": answers(lambda point: 1.0 + 0.1 * (-1) ** point),
            "vote": answers(None),
        },
    )
    tuned, vote = (
        with_both_ends(mitigation_result(name, None), found, number, "baseline")
        for name, number in (("tuned", 0), ("vote", None))
    )
    half = stats.t.ppf(0.975, 9) * np.std([0.1, -0.1] * 5, ddof=1) / np.sqrt(10)
    change = tuned.nll_difference
    assert (tuned.nll_two_masks, tuned.nll) == pytest.approx((0.6, 1.0))
    assert (change.difference, change.low, change.high) == pytest.approx((-1.5, -1.5 - half, -1.5 + half))
    assert (vote.nll_two_masks, vote.nll, vote.nll_difference) == (pytest.approx(0.5), None, None)


def test_a_mitigation_counts_only_if_the_likelihood_rises_too():
    gained = {"difference": 0.3, "difference_low": 0.2}
    nats = {
        name: NatsDifference(difference=value, low=value - 0.2, high=value + 0.2, rules_low=None, rules_high=None)
        for name, value in (("up", -0.5), ("down", 0.1))
    }
    rows = [
        mitigation_result("baseline", 0.4, nll_two_masks=0.5, nll=2.0),
        mitigation_result("tuning", 0.7, nll_two_masks=0.6, nll=1.5, nll_difference=nats["up"], **gained),
        mitigation_result("window", 0.7, nll_two_masks=0.5, nll=2.1, nll_difference=nats["down"], **gained),
        mitigation_result("voting", 0.7, nll_two_masks=0.5, **gained),
        mitigation_result("blocks", 0.4, nll_two_masks=0.5, nll=1.5, nll_difference=nats["up"]),
    ]
    result = cures_result(all_results(rows))
    assert "both rise, so these count as mitigations: tuning." in result.sentences[1]
    assert "does not rise significantly, so these do not count: window." in result.sentences[1]
    assert "Likelihoods were not measured of: voting." in result.sentences[1]
    cells = {row[0]: row[1:] for row in result.second.rows}
    assert cells["baseline"] == ("0.50", "2.00", "", "")
    assert cells["tuning"] == ("0.60", "1.50", "−0.50 (−0.70 to −0.30)", "accuracy, likelihood")
    assert (cells["window"][-1], cells["voting"][1:], cells["blocks"][-1]) == (
        "accuracy",
        ("–", "–", "accuracy"),
        "likelihood",
    )
    assert cures_result(all_results([mitigation_result("baseline", 0.4)])).second is None  # a file of an older version


def test_a_remembered_pass_changes_no_answer_and_is_taken_once():
    model = small_llada()
    passes = []
    body = model._body
    model._body = lambda *given: (passes.append(1), body(*given))[1]
    remembering = Remembering(model)
    for prompt in ([5, 6, 7, 8], [9, 10, 11]):
        for name in ("baseline", "small blocks", "growing canvas"):
            plain = tokens(model, [prompt], BY_NAME[name].options)
            assert tokens(remembering, [prompt], BY_NAME[name].options) == plain
    passes.clear()
    for _ in range(2):
        first_tokens(remembering, [[9, 10, 11]], BY_NAME["baseline"].options, MASKS)
    assert len(passes) == 1


def questions_for_known_models(points):
    tokenizer = shipped_tokenizer()
    found = []
    for task in (task for task in TASKS if task.name in TASK_NAMES):
        episode = draw(task, load_words(), 1, 1, points)
        for point, test in enumerate(episode.tests):
            encoded = encode_question(tokenizer, mixed(episode), test)
            found.append(PreparedQuestion(task.name, point, encoded.ids[: encoded.row], encoded.ids[encoded.row]))
    return found


def test_a_model_distracted_by_more_than_ten_masks_is_cured_by_a_canvas_that_never_shows_more():
    model = known_model(distracted)
    model.net.config = PretrainedConfig(eos_token_id=None)
    model.net.get_output_embeddings = lambda: model.net.embedding
    questions = questions_for_known_models(6)

    def share(name):
        records = answer(model, questions, BY_NAME[name].options, MASKS)
        return sum(record.correct for record in records) / len(records)

    guessing = sum(question.answer_id == shipped_tokenizer().convert_tokens_to_ids("A") for question in questions) / 12
    assert share("baseline") == guessing < 1
    assert share("small blocks") == share("window") == guessing  # 200 and 30 masks are shown
    assert share("growing canvas") == 1  # ten are


def test_biased_keys_weigh_as_much_as_one_mask():
    """A model that follows the share of masks it sees: misled by 200 masks, not where 198 of them count as one."""
    model = known_path(lambda direct, context: direct)
    questions = questions_for_known_models(6)
    assert all(record.correct for record in biased_answers(model, questions))
    (two, many) = (
        model.predict([[*q.prompt, *[model.mask_id] * k]], [[len(q.prompt)]])[0].argmax().item()
        for q in questions[:1]
        for k in (2, MASKS)
    )
    assert two == questions[0].answer_id != many


def test_a_wrapped_model_has_no_biased_keys_to_offer():
    wrapped = known_model(distracted)
    assert model_for(BY_NAME["biased mask keys"], wrapped, []) is None
    assert model_for(BY_NAME["baseline"], wrapped, []) is wrapped


def test_the_table_has_every_mitigation_and_a_paired_test():
    advanced = []
    exam = Exam(points=1, relevant=1, distractors=0, tasks=TASKS[:3])
    adapters = [TunedAdapter(small_llada(seed), method, "3 steps of 2 pairs")
                for seed, method in ((1, "anchored KL"), (2, PAPER_LOSS))]  # fmt: skip
    rows = {one.name: one for one in rows_for(adapters)}
    found = compare_mitigations(small_llada(), adapters, exam, advanced.append)
    assert [entry["cure"] for entry in found["cures"]] == list(rows)
    assert {"tuning: anchored KL", f"tuning: {PAPER_LOSS}"} < set(rows)  # the method that ran, and the paper's own
    assert sum(advanced) == asked(exam, len(adapters)) == 3 * (1 + 7 + 2 * 2 + 1)
    for entry in found["cures"]:
        assert 0 <= entry["low"] <= entry["accuracy"] <= entry["high"] <= 1
        assert entry["training"] == ("none" if rows[entry["cure"]].tuned is None else "3 steps of 2 pairs")
        assert entry["tokens_per_pass"] == (200 if rows[entry["cure"]].options["steps"] == 1 else 5)
        assert rows[entry["cure"]].tuned is not None or entry["two_masks"] == found["two_masks"]  # weights unchanged
        assert entry["nll"] > 0 and entry["nll_two_masks"] > 0
        if entry["cure"] != "baseline":
            ends = entry["recovered"]["ends"]
            assert ends["before"] == pytest.approx([found["two_masks"]["accuracy"], found["cures"][0]["accuracy"]])
            assert ends["after"] == pytest.approx([entry["two_masks"]["accuracy"], entry["accuracy"]])
    assert (
        found["cures"][0]["difference"] == 0
        and found["cures"][0]["difference_low"] == -found["cures"][0]["difference_high"] < 0
    )
    svg, _ = cures_result(found).chart.files()
    assert all(name in html.unescape(svg) for name in rows)
    (output,) = (line for line in what_it_shows(found) if line.startswith("tuning: anchored KL ("))
    assert "accuracy with 2 masks" in output and "before and" in output and "3 steps of 2 pairs" in output
    assert all(len(row) == len(cures_result(found).head) for row in cures_result(found).rows)


def test_the_share_recovered_counts_the_end_with_many_masks_alone():
    """Before: 9 of 10 right with 2 masks, 4 with 200. After: 3 and 8, so 4 of 5 are recovered, whatever 2 masks do."""
    table = np.array([[n < 9, n < 4, n < 3, n < 8] for n in range(10)], dtype=float)
    score = recovered_share({"task": table})
    assert score.value == pytest.approx((8 - 4) / (9 - 4))
    assert score.ends == {"before": pytest.approx([0.9, 0.4]), "after": pytest.approx([0.3, 0.8])}
    same = recovered_share({"task": table[:, [0, 0, 2, 3]]})
    assert same.value is None and same.why == "too little degradation to reduce"


def mitigation_result(name, accuracy, **values):
    known = {"difference": 0.0, "difference_low": -0.1, "tokens_per_pass": 5.0} | values
    return MitigationResult(
        cure=name, paper=None, accuracy=accuracy, low=0.1, high=0.9, difference_high=0.5, training="none", **known
    )


def all_results(rows, model="m"):
    two = Accuracy(accuracy=0.9, low=0.8, high=1)
    return Mitigations(model=model, masks=200, n=50, two_masks=two, cures=rows)


def test_a_model_that_cannot_answer_has_nothing_to_mitigate():
    """Neither "instead of 0 % it is 0 %" nor a frontier; of a mitigation that does help it is still said."""
    rows = [mitigation_result("baseline", 0.0), mitigation_result("window", 0.0)]
    unskilled = all_results(rows).changed(skill=task_skill(0, 48))
    first, *_ = what_it_shows(unskilled)
    assert first.replace("\u00a0", " ") == (
        "m: 0 of 48 right, guessing gives 33 %: not shown to be able to do the task, so nothing can be lost."
    )
    assert not any("*" in cell for row in cures_result(unskilled).rows for cell in row)
    easy = all_results(rows).changed(skill=task_skill(48, 48, changes=[(-0.06, 0.06)]))
    assert "too easy to show a loss" in what_it_shows(easy)[0]
    helped = unskilled.changed(cures=[rows[0], mitigation_result("window", 0.5, difference_low=0.2)])
    assert "Significantly above the baseline" in what_it_shows(helped)[1]


def test_the_sentences_name_what_helped():
    rows = [
        mitigation_result("baseline", 0.4, difference=0),
        mitigation_result("window", 0.5, difference=0.1),
        mitigation_result("growing canvas", 0.8, difference=0.4, difference_low=0.2),
    ]
    found = all_results(rows)
    cost, helped = what_it_shows(found)
    assert "40 %" in cost.replace("\u00a0", " ") and "growing canvas" in helped and "window" not in helped
    assert "No mitigation" in what_it_shows(all_results(rows[:2]))[1]


def test_mitigations_are_sorted_and_those_no_other_beats_are_marked():
    rows = [
        mitigation_result("baseline", 0.4, tokens_per_pass=200.0),
        mitigation_result("slow", 0.4),
        mitigation_result("window", 0.7),
        mitigation_result("tuned", None),
    ]
    found = all_results(rows, "<m>")
    assert frontier(rows) == {"baseline", "window"}
    assert frontier([*rows, mitigation_result("biased", 0.7, tokens_per_pass=200.0)]) == {"biased"}
    result = cures_result(found)
    assert [row[0] for row in result.rows] == ["two masks only", "baseline", "window", "slow", "tuned"]
    assert [row[-1] for row in result.rows] == ["", "200 *", "5 *", "5", ""]  # what was not run has no speed
    assert [bar.name for bar in result.chart.bars if bar.marked] == ["baseline", "window"] and result.chart.dots


@pytest.mark.slow
def test_the_command_works_on_a_folder_and_refuses_what_it_cannot_do(tmp_path, monkeypatch):
    monkeypatch.setattr(mitigations, "DEFAULT", Exam(relevant=1, distractors=0, tasks=TASKS[:2]))
    model = small_llada()
    model.net.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["cures", str(tmp_path / "model"), "--json", "--points", "1", "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert problem_of_output(found, OUTPUTS["cures (also cures.json)"]) is None
    assert found["n"] == 2 and [entry["cure"] for entry in found["cures"]] == list(BY_NAME)
    assert {path.name for path in out.iterdir()} == {"cures.json", "cures.svg", "cures.png", "cures.html"}
    # Without an adapter the rows that need one stay empty.
    empty = [entry["cure"] for entry in found["cures"] if entry["accuracy"] is None]
    assert empty == [one.name for one in WITHOUT_ADAPTER if one.tuned is not None]
    assert empty == [f"tuning: {PAPER_LOSS}", "tuning + growing canvas"]
    assert cures_result(convert(found, Mitigations)).table().row_count == 1 + len(WITHOUT_ADAPTER)
    assert "tuning" not in (out / "cures.svg").read_text()
    refused = CliRunner().invoke(app, ["cures", str(tmp_path / "model"), "--points", "0"])
    assert refused.exit_code == 2 and "--points" in refused.stderr
    with pytest.raises(UserError, match="autoregressive"):
        mitigations.compare_mitigations(tiny_ar())


def test_the_method_is_read_from_the_settings_next_to_the_adapter(tmp_path):
    model = small_llada()
    assert with_method(model, tmp_path) == TunedAdapter(model)
    settings = {"steps": 20, "batch": 3, "accumulation": 4, "alpha": 0.1, "beta": 1.0, "max_masks": 600}
    stored = {"identity": {"settings": settings}}
    (tmp_path / "training.json").write_text(json.dumps({"settings": stored, "result": {}}))
    assert with_method(model, tmp_path) == TunedAdapter(model, PAPER_LOSS, "20 steps of 12 pairs")
    settings |= {"steps": 30, "anchored": True, "alpha": 0.0, "targets": "attention"}
    (tmp_path / "settings.json").write_text(json.dumps(stored))
    found = with_method(model, tmp_path)
    assert (found.method, found.training) == ("anchored KL on the attention maps", "30 steps of 12 pairs")
    phantom = with_method(model, locate_checkpoint("tiny-llada+distracted+ma")[1][-1])
    assert (phantom.method, phantom.training) == ("anchored KL on the attention maps", "700 steps of 2 pairs")
    assert with_method(model, locate_checkpoint("tiny-llada+ma")[1][-1]).method == PAPER_LOSS


@pytest.mark.parametrize(
    ("changes", "method"),
    [
        ({}, PAPER_LOSS),
        ({"beta": 0.0}, "CE alone"),
        ({"alpha": 0.0}, "TV alone"),
        ({"one_branch": True}, "CE + TV, one branch"),
        ({"anchored": True}, "CE + anchored KL"),
        ({"anchored": True, "max_masks": 0}, "sham without masks, CE + anchored KL"),
    ],
)
def test_a_method_is_named_by_its_loss(changes, method):
    assert method_of(described(replace(TuneSettings(), **changes))) == method


def small_sdar():
    tokenizer = shipped_tokenizer()
    return tiny_sdar(tokenizer=tokenizer, vocab=len(tokenizer), window=1200, mask_token_id=tokenizer.mask_token_id)


@pytest.mark.parametrize("mitigation", WITHOUT_ADAPTER, ids=lambda one: one.name)
@pytest.mark.parametrize("block", [4, 32])
def test_on_blocks_a_mitigation_takes_the_passes_that_are_said_or_is_left_out(mitigation, block):
    chosen = for_blocks(mitigation, block)
    if mitigation.biased or mitigation.options.get("canvas") == "window":
        assert chosen is None
        return
    assert chosen.options.get("block") in (None, {4: 2, 32: 8}[block])
    if block == 4 and mitigation.tuned is None:
        model = small_sdar()
        made = generate(model, [[5] * 6], MASKS, **chosen.options)[0]
        assert made.forwards == passes_over_blocks(chosen.options, 6, block)
        assert tokens(model, [[5] * 6], chosen.options) == [made.ids[0]]


def test_a_block_model_is_compared_by_what_applies_to_it():
    model = small_sdar()
    found = compare_mitigations(model, exam=Exam(points=1, relevant=1, distractors=1, tasks=TASKS[:2]))
    assert problem_of_output(found, OUTPUTS["cures (also cures.json)"]) is None
    assert found["block"] == 4
    had = {entry["cure"]: entry for entry in found["cures"]}
    assert [name for name, entry in had.items() if entry["accuracy"] is not None] == [
        "baseline",
        "40-step unmasking",
        "small blocks",
        "growing canvas",
        "soft masking",
    ]
    assert had["baseline"]["tokens_per_pass"] == pytest.approx(4, abs=0.1)
    assert had["window"]["why"] == "masks after a block are not seen" and "why" not in had[f"tuning: {PAPER_LOSS}"]
    result = cures_result(found.changed(skill=UNSET))  # of two questions, which show no skill
    assert "its block of 4" in result.facts
    assert result.sentences[0].startswith("With 200 masks, of which at most 4 are visible, instead of two, ")
    assert result.sentences[-1] == (
        f"Not run: window, biased mask keys (masks after a block are not seen); tuning: {PAPER_LOSS}, tuning + growing "
        "canvas (needs --adapter)."
    )
    rows = {row[0]: row[1:] for row in result.rows}
    assert rows["window"] == rows["biased mask keys"] == ("not run", "", "", "", "")
    speeds = [row[-1].removesuffix(" *") for row in result.rows if row[-1]]
    assert all(re.fullmatch(r"\d(\.\d\d?)?", speed) for speed in speeds), speeds
    assert [bar.note for bar in result.chart.bars[1:]] == [f"{speed} tokens per pass" for speed in speeds]


def check_80_columns(result):
    page = StringIO()
    Console(file=page, width=80).print(result.table())
    shown = page.getvalue()
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown
    for row in result.rows:
        assert set(row[0].split()) <= set(shown.split()) and all(cell in shown for cell in row[1:])


def test_the_table_keeps_names_and_numbers_whole_in_80_columns():
    exam = Exam(points=1, relevant=1, distractors=1, tasks=TASKS[:2])
    check_80_columns(cures_result(compare_mitigations(small_sdar(), exam=exam)))
    ends = {"before": [0.9, 0.4], "after": [0.9, 0.8]}
    tuned = mitigation_result(
        "tuning: sham without masks, CE + anchored KL on the attention maps",
        0.8,
        difference=0.277,
        difference_low=0.212,
        two_masks=Accuracy(accuracy=0.9, low=0.8, high=1),
        recovered=Score(value=1.01, low=0.9, high=1.2, ends=ends),
    )
    result = cures_result(all_results([mitigation_result("baseline", 0.4, tokens_per_pass=200.0), tuned]))
    check_80_columns(result)
    assert result.rows[-1][1:5] == ("90.0\u00a0%", "80.0\u00a0% (10 to 90)", "+27.7 (21 to 50)", "101\u00a0%")
    nearly_zero = tuned.changed(difference_low=0.003)
    assert cures_result(all_results([nearly_zero])).rows[-1][3] == "+27.7 (0.3 to 50.0)"


@pytest.mark.slow
def test_a_killed_comparison_goes_on_where_it_was(tmp_path, monkeypatch):
    model, seen = small_llada(), []

    def count(*arguments, **options):
        seen.append(1)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return answer(*arguments, **options)

    def asked_now():
        """A whole comparison in the folder, and how many batches it asked."""
        seen[:] = [1] * 5
        return mitigations.cures(model, points=1, out=tmp_path), len(seen) - 5

    monkeypatch.setattr(mitigations, "answer", count)
    monkeypatch.setattr(mitigations, "DEFAULT", Exam(tasks=TASKS[:1]))
    with pytest.raises(KeyboardInterrupt):
        mitigations.cures(model, points=1, out=tmp_path)
    file = tmp_path / "cures.partial.jsonl"
    assert len(file.read_text().splitlines()) == 1 + 4
    file.write_text(file.read_text() + '{"cure": "base')  # torn by a kill
    again, resumed = asked_now()
    assert not file.exists()
    file.write_text('{"models": "others"}\nnonsense\n')  # of another comparison: begun anew
    whole, all_asked = asked_now()
    assert again == whole and all_asked - resumed == 4
