"""smol-diffusion's text next to its teacher's, with the embedded tiny models in their places."""

import re

import pytest
import torch

import maskwise as mw
import smol_text


@pytest.mark.slow
def test_every_way_of_writing_has_its_line(capsys):
    threads = str(torch.get_num_threads())
    smol_text.main(
        ["--prompts", "2", "--tokens", "16", "--threads", threads, "--teacher", "tiny-qwen", "--model", "tiny-dream"]
    )
    lines = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [line[0].strip() for line in lines[1:]] == ["teacher, temperature 1", "teacher, greedy", *smol_text.WAYS]
    for name, nats, repeated, speed, passes in lines[1:]:
        assert re.fullmatch(r" \d+\.\d\d \+- \d+\.\d\d ", nats) and float(speed) > 0, name
        assert 0 <= float(repeated.strip(" %")) <= 100
        assert float(passes) == 1 or "threshold" in name


def test_nats_are_the_teachers_own_and_greedy_text_is_more_probable():
    teacher = mw.open("tiny-qwen", device="cpu")
    given = teacher.tokenizer("Once upon a time")["input_ids"]
    greedy, drawn = (
        smol_text.teacher_way(mw.open("tiny-qwen", device="cpu"), 16, sampled)(given) for sampled in (False, True)
    )
    with torch.no_grad():
        logits = teacher.core(torch.tensor([given + greedy.new])).logits[0].log_softmax(-1)
    steps = [float(logits[len(given) - 1 + n, token]) for n, token in enumerate(greedy.new)]
    assert smol_text.nats(teacher, greedy) == pytest.approx(-sum(steps) / 16, rel=1e-4)
    assert smol_text.nats(teacher, greedy) < smol_text.nats(teacher, drawn)


def test_repetition_is_the_share_of_runs_that_stood_there_before():
    assert smol_text.repeated([7] * 8) == pytest.approx(0.8)
    assert smol_text.repeated(list(range(20))) == 0 and smol_text.repeated([1, 2]) == 0
