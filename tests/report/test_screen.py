"""The first screen: rows, verdicts, control, flips and advice from tables of known answers."""

from dataclasses import replace

import pytest
from msgspec import structs

from helpers.screens import N, contrast, masks, pairs, prompt, screen, stops
from maskwise.report.screen import in_lines, letters_of, question_of
from maskwise.scoring import verdicts as rule


def commands(found):
    return [command.removeprefix("maskwise ") for command, _ in found.advice]


def test_the_numbers_and_verdicts_of_a_distracted_model():
    found = screen(masks=masks(10, 20, 90), stops=stops(10, 12), distance=contrast(20, 80), together=pairs(1.5, 0.0))
    assert [(at, round(N * level.value)) for at, level in found.rows["masks"].levels] == [
        ("2", 246),
        ("20", 236),
        ("200", 166),
    ]
    assert found.rows["masks"].change.value == pytest.approx(-80 / N)
    assert found.rows["distance"].change.value == pytest.approx(-60 / N)
    assert found.beyond_stops.value == pytest.approx(-78 / N) and found.few[1].value == pytest.approx(-70 / N)
    assert {key: str(one) for key, one in found.verdicts.items()} == {
        "masks": "LOSS, mostly the masks",
        "stops": "none detected",
        "distance": "LOSS",
        "together": "one at a time",
    }
    assert found.flips == (80, 0, N - 80)
    assert commands(found) == [
        "diagnose m --probes mitigations",
        "generate m --canvas growing",
        "diagnose m --data FILE",
        "tune m --data FILE",
    ]


def test_any_text_is_no_reason_to_tune():
    found = screen(masks=masks(10, 10, 90), stops=stops(10, 90))
    assert str(found.verdicts["masks"]) == f"LOSS, {rule.ANY_TEXT}" and "tune m --data FILE" not in commands(found)


def test_a_healthy_model_hears_nothing_about_masks_and_where_to_put_what_decides():
    found = screen(masks=masks(0, 0, 0), stops=stops(0, 0), distance=contrast(5, 90))
    assert found.verdicts["masks"] == rule.Verdict(rule.NONE) and found.beyond_stops is None
    assert commands(found) == ["", "diagnose m --data FILE"]


def test_a_guessing_model_and_one_with_few_questions():
    guessing = screen(masks=masks(190, 190, 190))
    assert guessing.verdicts["masks"].why == rule.GUESSING
    assert commands(guessing) == ["diagnose m --chat", "verify m", "diagnose m --relevant 20"]
    table = masks(1, 1, 1)
    few = screen(masks=table[table.point < 1])
    assert few.verdicts["masks"] == rule.Verdict(rule.CANNOT_TELL, rule.TOO_FEW)
    assert commands(few)[0].startswith("diagnose m --questions ")


def test_a_tuned_model_is_compared_with_its_base():
    found = screen({"tuned": "base"}, masks=masks(10, 10, 90))
    assert commands(found)[0] == "compare base m" and not any(one.startswith("tune") for one in commands(found))


def test_block_models_and_those_without_masks():
    block = screen({"block": 32}, masks=masks(10, 90, counts=(2, 32)), stops=stops(10, 10, counts=(0, 29)))
    assert [at for at, _ in block.rows["masks"].levels] == ["2", "32"] and block.verdicts["masks"].why == rule.MOSTLY
    assert not any(one.startswith("tune") for one in commands(block))
    alone = screen({"mask_id": None, "kind": "ar"}, distance=contrast(10, 80, masks=0))
    assert (
        alone.lead == "distance"
        and alone.flips == (210, 0, 3 * (N - 70))
        and alone.verdicts["distance"].word == rule.LOSS
    )
    assert screen().advice == [] and in_lines(screen()) == ["m: masked diffusion (LLaDA), 8 B parameters, bfloat16"]


def test_the_question_shown_is_one_whose_answer_becomes_wrong():
    stays = [prompt(k, {"A": 0.9, "B": 0.1}) for k in (2, 20, 200)]
    flips = [prompt(k, {"A": a, "B": 1 - a}, point=1) for k, a in ((2, 0.97), (20, 0.9), (200, 0.31))]
    found = screen(prompts=[*stays, *flips], masks=masks(10, 20, 90))
    assert found.example == [flips[0], flips[2]] and screen(prompts=stays, masks=masks(0, 0, 0)).example == [
        stays[0],
        stays[2],
    ]
    assert question_of(flips[0]) == "Options: (A) fox, (B) knife, (C) rugby"
    assert letters_of(flips[2]) == [("A", 0.31), ("B", 0.69), ("C", 0.0)]
    said = "\n".join(in_lines(found))
    assert "LOSS" in said and "A 97%" in said and "B 69%" in said and "(chosen because it flips)" in said
    assert "do 1: maskwise diagnose m --probes mitigations" in said
    healthy = screen(prompts=[*flips, *stays], masks=masks(0, 1, 1))
    assert healthy.example == [stays[0], stays[2]] and "(no loss: this one stays)" in "\n".join(in_lines(healthy))
    assert screen(prompts=flips, masks=masks(190, 190, 190)).example == []  # it guesses
    gained, lost = (screen(prompts=stays, masks=masks(*wrong)) for wrong in ((60, 60, 3), (0, 60, 62)))
    assert gained.why_this == "this one stays" and lost.verdicts["masks"].word == rule.LOSS
    assert lost.why_this == "none here flips"
    assert screen(prompts=flips, masks=masks(3, 3, 3)).why_this == "this one flips"
    others = [structs.replace(one, condition=one.condition | {"relevant": 1}) for one in flips]
    others += [structs.replace(one, probe="mechanism", condition={"masks": "no masks"}) for one in flips]
    assert screen(prompts=[*others, *stays], masks=masks(3, 20, 80)).example == [stays[0], stays[2]]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_lines_hold_every_interval(width):
    found = screen(masks=masks(10, 20, 90), stops=stops(10, 12), distance=contrast(20, 80), together=pairs(1.5, 0.0))
    text = "\n".join(in_lines(found, width))
    assert "The interval over questions decides the verdict" in text
    for row in found.rows.values():
        assert all(row.change.text(end) in text for end in (row.change.low, row.change.high, row.change.tasks_low))


def test_the_lead_and_the_control_are_in_no_test_of_many():
    """Of these four claims one is tested beside distance: the others are of the lead, the control and distance."""
    found = screen(masks=masks(10, 20, 85), stops=stops(10, 12), distance=contrast(20, 80))
    claims = {name: found.rows["stops"].change for name in ("mask-count", "filler", "contrast", "order")}
    many = replace(found, claims={name: replace(one, p=0.03, claim="below") for name, one in claims.items()})
    row = many.rows["distance"]
    row.__dict__["change"] = replace(row.change, p=0.04)
    assert many.verdicts["distance"].why == rule.NOT_CERTAIN.format(2)
