"""A search over what a server's request takes: a setting that is worse is not named, and nothing is asked twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import maskwise as mw
from helpers.completions_server import completion, diffusion, listed, serving
from helpers.outputs import problem_of_output
from maskwise.advice.search_request import prepare
from maskwise.advice.served_space import ServedSpace, with_values
from maskwise.cli import app
from maskwise.cli.outputs import OUTPUTS
from maskwise.models.model import Model
from maskwise.records.search import SearchManifest
from maskwise.report.pages.advice import read_search
from maskwise.report.pages.registry import search_table
from maskwise.report.words.card import run_card_of
from maskwise.runs.endpoint import Endpoint
from maskwise.support.errors import UserError
from maskwise.support.http_json import Patience
from maskwise.support.typed import json_object

HASTY = Patience(timeout=60, tries=1, pause=0.01)
TOKENS = 4
Found = dict[str, Any]


@pytest.fixture(scope="module")
def tiny_llada() -> Model:
    return mw.open("tiny-llada", device="cpu")


@pytest.fixture(scope="module")
def questions(tiny_llada: Model) -> list[dict[str, str]]:
    """The answer is what the opened model writes greedily in one step: known to be right at temperature 0."""
    prompts = [f"The number {number} is" for number in range(60, 92)]
    made = mw.generate(tiny_llada, prompts, TOKENS, steps=1)
    return [{"prompt": p, "answer": one.text} for p, one in zip(prompts, made, strict=True)]


SEARCH = {"exact": True, "max_tokens": [TOKENS], "temperatures": [5.0, 0.0]}


@pytest.fixture(scope="module")
def found(tiny_llada: Model, questions: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Found:
    """A search that its server interrupts by dying; the reference is the setting that is worse."""
    answer, asked, out = diffusion(tiny_llada), [], tmp_path_factory.mktemp("advise") / "found"

    def dies(path: str, body: dict[str, object]) -> tuple[int, object]:
        asked.extend([body] if path.endswith("/completions") else [])
        return (500, {"error": "out of memory"}) if len(asked) > 25 else answer(path, body)

    with serving(dies) as first, pytest.raises(UserError, match=r"out of memory.*the answers so far are kept"):
        mw.advise(Endpoint(first.url, requests=2, patience=HASTY), questions, out=out, **SEARCH)
    kept = len((out / "records.jsonl").read_text().splitlines())
    said: list[str] = []
    with serving(answer) as second:
        result = mw.advise(Endpoint(second.url, requests=2), questions, out=out, on_cost=said.append, **SEARCH)
        sent = [json.dumps(body) for body in second.bodies]
        assert len(sent) == len(set(sent)) == 2 * len(questions) - kept  # two settings, every question once
    assert kept == 25 and "25 answers on file" in said[0] and "64 requests, 2 at a time, of" in said[0]
    return result


@pytest.mark.slow
def test_a_setting_that_is_worse_is_not_named(found: Found) -> None:
    good, bad = (f"temperature {hot}, max_tokens {TOKENS}" for hot in (0, 5))
    assert found["winner"] == good and found["reference"] == bad
    quality = {row["setting"]: row["quality"]["mean"] for row in found["confirmed"]}
    assert quality[good] == 1.0 and quality[bad] < 0.5
    assert {row["setting"] for row in found["advice"]} == {good}
    assert found["passes"] is None and all(row["passes"] is None for row in found["confirmed"])
    best = found["advice"][0]
    assert best["options"] == {"max_tokens": TOKENS, "temperature": 0.0}
    assert best["command"].startswith("curl http://") and "openai.OpenAI(base_url='http://" in best["python"]
    assert "s per question" in found["sentence"] and "forward pass" not in found["sentence"]


def test_page_table_and_card_of_a_served_search_show_seconds_alone(found: Found) -> None:
    folder = Path(found["folder"])
    search = read_search(folder)
    assert problem_of_output(found, OUTPUTS["advise (also advice.json)"]) is None
    assert problem_of_output(json_object(search.manifest), SearchManifest) is None
    page, card = (folder / "advice.html").read_text(), run_card_of(folder)
    assert "Seconds per question" in page and "asses" not in page + card
    (row,) = search_table([search]).rows
    assert row[3].text == "" and row[3].below.endswith(" s")
    assert not any(b"sk-secret" in file.read_bytes() for file in folder.iterdir())


@pytest.mark.slow
def test_the_command_searches_a_field_that_the_user_declares(
    tiny_llada: Model, questions: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKWISE_API_KEY", "sk-secret")
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    with serving(diffusion(tiny_llada)) as served:
        search = f"--max-tokens {TOKENS} --temperatures 0 --exact --data {tmp_path / 'q.jsonl'} --out"
        command = ["advise", "--endpoint", served.url, "--concurrency", "3", *search.split()]
        done = CliRunner().invoke(app, [*command, str(tmp_path / "a"), "--body", f"steps=1,{TOKENS},null"])
        assert done.exit_code == 0, done.output
        wrong = CliRunner().invoke(app, [*command, str(tmp_path / "b"), "--body", "step=1,2"])
    assert "states no field 'step' of a completion: did you mean steps?" in wrong.stderr
    assert {body.get("steps") for body in served.bodies} == {1, TOKENS, None}
    assert {one["Authorization"] for one in served.headers} == {"Bearer sk-secret"}
    assert "reference" in done.stdout and "in less time" in done.stdout and "asses" not in done.stdout
    assert not any(b"sk-secret" in file.read_bytes() for file in (tmp_path / "a").iterdir())


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"canvases": "fixed"}, "canvases is for a model opened here, whose logits are read"),
        ({"steps": [8]}, "steps is for a model opened here"),
        ({"cost": "passes"}, "a server does not say how many forward passes"),
        ({"temperatures": "hot"}, "temperatures hot: give numbers"),
        ({"max_tokens": [0]}, "give whole numbers of 1 or more"),
        ({"max_tokens": "2.5"}, "give whole numbers"),
        ({"max_tokens": [8], "temperatures": [0]}, "two or more different"),
        ({"max_tokens": [8], "temperatures": [0, 0]}, "two or more different"),
        ({"body": ["stream=true"]}, "maskwise writes this field itself"),
        ({"body": ["steps"]}, "as NAME=VALUE,VALUE"),
        ({"body": ["steps=8", "steps=16"]}, "write each field once"),
    ],
)
def test_what_a_server_does_not_take_is_refused_in_one_line(given: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line) as refused:
        prepare(server=("m", "http://host/v1"), **given)
    assert "\n" not in str(refused.value)


def test_options_of_servers_need_one() -> None:
    with pytest.raises(UserError, match="temperatures goes with endpoint"):
        prepare(temperatures=[0, 1])


def test_values_are_read_from_texts() -> None:
    space = with_values(ServedSpace(), "8,4", "0,0.5", ["steps=8,null", "rule=low,random", "x={a: 1},{a: 2}"])
    assert space.max_tokens == (8, 4) and space.temperatures == (0.0, 0.5)
    assert space.body == {"steps": [8, None], "rule": ["low", "random"], "x": [{"a": 1}, {"a": 2}]}
    settings = space.settings("m", "http://host/v1")
    assert len(settings) == 2**5 and settings[0].name == ("temperature 0, max_tokens 8, steps 8, rule low, x {'a': 1}")
    default = next(one for one in settings if one.body["steps"] is None)
    assert "steps default" in default.name and "steps" not in default.given
    assert with_values(ServedSpace(), None, None, {"steps": [1]}).body == {"steps": [1]}


def test_a_prompt_that_does_not_fit_with_its_answer_is_refused_first(tmp_path: Path) -> None:
    def reply(path: str, body: dict[str, object]) -> tuple[int, object]:
        if path == "/tokenize":
            return 200, {"tokens": [1] * 40}
        return 200, completion("A") if path.endswith("/completions") else listed("m", max_model_len=64)

    asked = [{"prompt": f"a {number}", "answer": "A"} for number in range(40)]
    with serving(reply) as served:
        with pytest.raises(UserError, match="40 tokens before 128 new ones, the context length of m is 64"):
            mw.advise(Endpoint(served.url), asked, exact=True, out=tmp_path / "a")
        assert not served.bodies
