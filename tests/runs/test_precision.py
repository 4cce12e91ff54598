"""`--precision`: a first stage, then once as many blocks as the worst difference needs; the run says how many."""

from dataclasses import replace

import pytest

from helpers.known import SMALL, TASK_NAMES, distracted, known_model, nearest_rule, uniform
from maskwise.probes import PROBES
from maskwise.probes.summary import summarise
from maskwise.probes.until_precise import blocks_in_all
from maskwise.records.folder import read_run
from maskwise.report.readings import read_all
from maskwise.report.words.printed_summary import print_summary
from maskwise.report.words.sentences import opening
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import check
from maskwise.scoring.precision import FIRST_STAGE
from maskwise.support.errors import UserError

ASKED = replace(SMALL, probes=("location", "natural-text"), precision=6.0).changed("location", locations=(0, 4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return diagnose(known_model(nearest_rule), ASKED, tmp_path_factory.mktemp("run") / "run")


def blocks_of(records):
    return {record["point"] for record in records if record["probe"] == "location"}


def test_as_many_blocks_as_the_worst_difference_needs(folder, capsys):
    run = read_run(folder)
    first = [record for record in run.records if record["point"] < FIRST_STAGE]
    wanted = blocks_in_all(first, PROBES, 6.0)
    assert wanted > FIRST_STAGE and blocks_of(run.records) == set(range(wanted))
    assert len(run.records) == wanted * len(TASK_NAMES) * 2 + ASKED.passages * 4  # the others as the preset says
    found = summarise(run)["precision"]
    assert (found["wanted"], found["first_stage"], found["second_stage"]) == (0.06, FIRST_STAGE, wanted - FIRST_STAGE)
    assert found["asked"] == wanted and 0.05 < found["half_width"] <= 0.06
    assert found["worst"]["condition"] == {"location": 0, "relevant": 2} and found["worst"]["probe"] == "location"
    assert found["worst"]["difference"] == pytest.approx(-2 / 3, abs=0.01)
    (reading,) = read_all([folder])
    evidence = opening(reading)[-1].evidence
    assert f"For ±6.0\u00a0points: 64 blocks of one question per task, then {wanted - FIRST_STAGE} more by" in evidence
    assert "Stein's rule; the least certain difference (location) is known to ±" in evidence
    print_summary(reading)
    assert f"then {wanted - FIRST_STAGE} more" in " ".join(capsys.readouterr().out.split())


def test_a_second_stage_that_was_cut_goes_on_to_the_same_number(folder, tmp_path):
    model = known_model(nearest_rule)
    body, passes = model._body, []

    def failing(net, batch, layout):
        passes.append(len(batch.offsets) - 1)
        if sum(passes) > (FIRST_STAGE + 10) * len(TASK_NAMES) * 2:
            raise KeyboardInterrupt
        return body(net, batch, layout)

    model._body = failing
    with pytest.raises(KeyboardInterrupt):
        diagnose(model, ASKED, tmp_path / "run", batch_tokens=2000)
    cut = summarise(read_run(tmp_path / "run"))["precision"]
    whole = summarise(read_run(folder))["precision"]
    assert FIRST_STAGE <= cut["asked"] < whole["asked"] and cut["second_stage"] == whole["second_stage"]
    model._body = body
    diagnose(model, ASKED, tmp_path / "run")
    assert read_run(tmp_path / "run").records == read_run(folder).records


def test_where_nothing_differs_the_first_stage_suffices(tmp_path):
    run = read_run(diagnose(known_model(uniform), replace(ASKED, probes=("location",)), tmp_path / "run"))
    found = summarise(run)["precision"]
    assert blocks_of(run.records) == set(range(FIRST_STAGE)) and found["second_stage"] == 0
    assert 0 < found["half_width"] < 0.06


def test_without_it_nothing_is_said(tmp_path):
    run = read_run(diagnose(known_model(distracted), replace(ASKED, precision=None), tmp_path / "run"))
    assert "precision" not in summarise(run) and "precision" not in run.manifest["settings"]


@pytest.mark.parametrize("points", [0.0, -2.0, 51.0, float("nan")])
def test_a_bad_value_is_one_line(points):
    with pytest.raises(UserError, match=r"precision takes a half-width of 0.1 to 50 points, such as 2, not"):
        check(replace(ASKED, precision=points))


def test_probes_without_few_shot_questions_cannot_have_it():
    with pytest.raises(UserError, match="precision is about few-shot probes: name one of location,"):
        check(replace(ASKED, probes=("recall",)))
