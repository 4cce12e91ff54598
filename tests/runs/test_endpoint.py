"""A model behind the completions protocol: the same answers as opening it, one line or a retry for broken servers."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

import maskwise as mw
from helpers.completions_server import completion, diffusion, listed, serving
from maskwise.decoding.generate import generate
from maskwise.models.model import Model
from maskwise.probes.answers.plain import first_piece
from maskwise.records.record import key_of
from maskwise.runs.diagnose import diagnose as ask_probes
from maskwise.runs.endpoint import Endpoint, UserStated, base_of
from maskwise.runs.run import run_inputs
from maskwise.support.errors import UserError
from maskwise.support.http_json import Patience
from maskwise.tasks.prompts import Prompt

HASTY = Patience(timeout=0.5, tries=3, pause=0.01)
PATIENT = Patience(timeout=60, tries=2, pause=0.01)
SMALL = {"preset": "quick", "points": 1, "tasks": ["animal-smallest"]}


@pytest.fixture(scope="module")
def tiny_llada() -> Model:
    return mw.open("tiny-llada")


def test_answers_equal_those_of_the_opened_model(tiny_llada: Model, tmp_path: Path) -> None:
    with serving(diffusion(tiny_llada)) as served:
        run = mw.diagnose(Endpoint(served.url, requests=3), "location,question-position", out=tmp_path / "a", **SMALL)
    direct = mw.diagnose(tiny_llada, "location,question-position", out=tmp_path / "b", **SMALL)
    assert [key_of(r) for r in run.records] == [key_of(r) for r in direct.records]
    assert [(r.predicted, r.correct) for r in run.records] == [(r.predicted, r.correct) for r in direct.records]
    assert {r.condition["question"] for r in run.records if r.probe == "question-position"} == {"left", "right"}
    assert all(r.nll is r.confidence is r.entropy is None for r in run.records)
    assert run.scores["locality"].n == direct.scores["locality"].n
    assert run.scores["distance_nats"].value is None
    assert run.manifest.model.served is not None and run.manifest.model.served.infills
    assert run.report().exists()


def test_each_answer_is_what_the_model_writes_after_the_prompt(tiny_llada: Model, tmp_path: Path) -> None:
    probes = "recall,context-length"
    with serving(diffusion(tiny_llada)) as served:
        run = mw.diagnose(Endpoint(served.url), probes, out=tmp_path / "a", **SMALL)
    assert {r.probe for r in run.records} == set(probes.split(","))
    for record in {record.probe: record for record in run.records}.values():
        prompt = mw.read_run(run.folder).prompt(record).partition("<|gap|>")[0]
        masks = 8 if record.probe == "recall" else 2
        (made,) = generate(tiny_llada, [tiny_llada.tokenizer(prompt)["input_ids"]], masks, 1)
        assert tiny_llada.tokenizer.decode(made.ids).startswith(record.predicted)


@pytest.mark.parametrize(
    ("text", "tokens", "finish", "piece"),
    [("AA", 2, "length", "A"), ("A]", 2, "length", "A"), ("AA", 2, "stop", "AA"), ("Apple", 2, "length", "Apple")],
)
def test_a_letter_is_the_first_token_where_each_token_is_one_character(
    text: str, tokens: int, finish: str, piece: str
) -> None:
    """Two letters written at once are one word of text; of an opened model the first token alone is compared."""
    with serving(lambda path, body: (200, completion(text, tokens=tokens, finish=finish))) as served:
        model = Endpoint(served.url, "any")
        ids = model.tokenizer("Answer:[A")["input_ids"]
        found = first_piece(model, Prompt((*ids[:-1], model.mask_id), len(ids) - 1, ids[-1], 1))
    assert model.tokenizer.decode([found]) == piece


def test_a_resumed_run_asks_nothing_twice(tiny_llada: Model, tmp_path: Path) -> None:
    answer = diffusion(tiny_llada)
    asked: list[str] = []

    def dies(path: str, body: dict[str, object]) -> tuple[int, object]:
        asked.extend([path] if path.endswith("/completions") else [])
        return (500, {"error": "out of memory"}) if len(asked) > 6 else answer(path, body)

    options = SMALL | {"points": 6, "out": tmp_path / "a", "probes": "location"}
    with serving(dies) as first, pytest.raises(UserError, match=r"out of memory.*the answers so far are kept"):
        mw.diagnose(Endpoint(first.url, requests=2, patience=PATIENT), **options)
    kept = len((tmp_path / "a" / "records.jsonl").read_text().splitlines())
    assert kept
    with serving(answer) as second:
        run = mw.diagnose(Endpoint(second.url, requests=2), **options)
        assert len(second.questions) == len(set(second.questions)) == len(run.records) - kept
        mw.diagnose(Endpoint(second.url, requests=2), **options)
        assert len(second.questions) == len(run.records) - kept


def test_a_key_comes_from_the_environment_and_is_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKWISE_API_KEY", "sk-secret")

    def guarded(path: str, body: dict[str, object]) -> tuple[int, object]:
        return (200, listed("m")) if path.endswith("/models") else (200, completion("A]."))

    with serving(guarded) as served:
        run = mw.diagnose(Endpoint(served.url), "location", out=tmp_path / "a", **SMALL)
        run.report()
        assert all(one["Authorization"] == "Bearer sk-secret" for one in served.headers)
    assert not any(b"sk-secret" in file.read_bytes() for file in (tmp_path / "a").rglob("*") if file.is_file())
    wrong = serving(lambda path, body: (401, {"error": {"message": "wrong key sk-secret"}}))
    with wrong as served, pytest.raises(UserError, match=r"401 \(wrong key \*\*\*\): put .* MASKWISE_API_KEY"):
        Endpoint(served.url)
    for url in ("http://user:sk-secret@host/v1", "http://host/v1?key=sk-secret"):
        with pytest.raises(UserError, match="MASKWISE_API_KEY") as refused:
            base_of(url)
        assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ((500, {"error": {"message": "CUDA error"}}), r"status 500 \(CUDA error\) \(3 times\)"),
        ((429, {"message": "busy"}), r"status 429 \(busy\) \(3 times\)"),
        ((200, b"<!DOCTYPE html><p>Welcome"), "a web page"),
        ((200, b'{"choices": [{"te'), r"broken JSON \(3 times\)"),
        ((200, {"result": "A"}), "does not speak the completions protocol"),
        ((200, {"choices": []}), "does not speak the completions protocol"),
        ((404, {"detail": "no model m"}), r"status 404 \(no model m\)"),
        ((302, b""), "status 302"),
        ((0, b""), r"cannot be reached .* \(3 times\)"),
    ],
)
def test_a_broken_server_gets_one_line(reply: tuple[int, object], line: str) -> None:
    with serving(lambda path, body: reply if path.endswith("/completions") else (200, listed("m"))) as served:
        model = Endpoint(served.url, patience=HASTY)
        with pytest.raises(UserError, match=line) as refused:
            model.write("a", "", 1, 0.0, 0)
        assert "\n" not in str(refused.value)


def test_a_server_that_stalls_is_asked_again() -> None:
    turns = iter([0.8, 0.0])

    def slow(path: str, body: dict[str, object]) -> tuple[int, object]:
        if not path.endswith("/completions"):
            return 200, listed("m")
        time.sleep(next(turns))
        return 200, completion("B")

    with serving(slow) as served:
        assert Endpoint(served.url, patience=HASTY).write("a", "", 1, 0.0, 0).text == "B"


@pytest.mark.parametrize("first", [(503, b"loading"), (429, b""), (200, b'{"cho'), (0, b"")])
def test_what_passes_is_retried(first: tuple[int, object]) -> None:
    replies = iter([first, (200, completion("C", finish="stop"))])
    with serving(lambda path, body: next(replies) if path.endswith("/completions") else (200, listed("m"))) as served:
        assert Endpoint(served.url, patience=HASTY).write("a", "", 1, 0.0, 0).ended


def test_a_dead_server_is_one_line_at_once() -> None:
    with serving(lambda path, body: (200, {})) as served:
        url = served.url
    with pytest.raises(UserError, match="cannot be reached"):
        Endpoint(url)


@pytest.mark.parametrize("suffix", ["ignored", "refused", "appended"])
def test_a_server_that_does_not_read_the_suffix_is_asked_with_the_question_last(suffix: str, tmp_path: Path) -> None:
    def reply(path: str, body: dict[str, object]) -> tuple[int, object]:
        if path.endswith("/models"):
            return 200, listed("m")
        if "suffix" in body and suffix == "refused":
            return 400, {"error": {"message": "suffix is not supported"}}
        return 200, completion(f"A{body.get('suffix', '') if suffix == 'appended' else ''}", prompt_tokens=8)

    with serving(reply) as served:
        run = mw.diagnose(Endpoint(served.url), "question-position,location", out=tmp_path / "a", **SMALL)
        assert {suffix for _, suffix in served.questions} == {None}
    assert {record.probe for record in run.records} == {"location"}
    assert any("question-position was not run: the server continues prompts" in note for note in run.manifest.notes)


def test_probes_that_need_more_than_text_say_why(tmp_path: Path) -> None:
    with serving(lambda path, body: (200, listed("m")) if path.endswith("/models") else (200, completion("A"))) as one:
        model = Endpoint(one.url)
        with pytest.raises(UserError, match=r"mask-count does not apply, it varies the masks .* the server's own"):
            mw.diagnose(model, "mask-count", out=tmp_path / "a", **SMALL)
        with pytest.raises(UserError, match="attribution does not apply, it needs logits"):
            mw.diagnose(model, "attribution", out=tmp_path / "a", **SMALL)
        assert not (tmp_path / "a").exists()


def test_the_settings_of_a_server_are_its_own_or_the_users() -> None:
    said = {"max_model_len": 4096, "dllm_block_length": 32, "dllm_unmasking_strategy": "low_confidence_dynamic"}
    with serving(lambda path, body: (200, listed("m", **said)) if path.endswith("/models") else (404, {})) as served:
        model = Endpoint(served.url, stated=UserStated(steps=8))
        assert model.settings.stated_by == {"canvas": "server", "steps": "user", "strategy": "server"}
        assert (model.canvas, model.settings.steps, model.window) == (32, 8, 4096)
        with pytest.raises(UserError, match="states canvas 32, not 64"):
            Endpoint(served.url, stated=UserStated(canvas=64))
        with pytest.raises(UserError, match="concurrency"):
            Endpoint(served.url, requests=0)


def test_a_model_is_named_where_there_are_several() -> None:
    several = {"data": [{"id": "a"}, {"id": "b"}]}
    with serving(lambda path, body: (200, several)) as served:
        with pytest.raises(UserError, match="serves 2 models: a, b; name one"):
            Endpoint(served.url)
        assert Endpoint(served.url, "b").name == "b"
    with serving(lambda path, body: (500, b"Internal Server Error")) as served:
        assert Endpoint(served.url, "b").name == "b"  # a server without a list
        with pytest.raises(UserError, match="serves no listed models; name one"):
            Endpoint(served.url)


def test_addresses() -> None:
    assert base_of("http://host:8000") == base_of("http://host:8000/v1/") == "http://host:8000/v1"
    assert base_of("https://host/api/v1/completions") == "https://host/api/v1"
    for wrong in ("localhost:8000", "ftp://host", "file:///etc/passwd"):
        with pytest.raises(UserError, match="endpoint takes"):
            base_of(wrong)


def test_manifest_and_command(tiny_llada: Model, tmp_path: Path) -> None:
    with serving(diffusion(tiny_llada, dllm_denoising_steps=1)) as served:
        run = mw.diagnose(Endpoint(served.url, stated=UserStated(canvas=2)), "location", out=tmp_path / "a", **SMALL)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert manifest["model"]["served"] == {
        "canvas": 2, "steps": 1, "infills": True, "stated_by": {"canvas": "user", "steps": "server"},
    }  # fmt: skip
    assert {record.masks for record in run.records} == {2}
    assert "strategy not stated" in manifest["notes"][0]


@pytest.mark.parametrize("back", ["otherwise", None])
def test_the_round_trip_through_the_servers_tokenizer_is_checked(back: str | None, tmp_path: Path) -> None:
    asked: list[str] = []

    def reply(path: str, body: dict[str, object]) -> tuple[int, object]:
        asked.append(path)
        shown = {"/tokenize": {"tokens": [1] * 99}, "/detokenize": {"text": back}} if back else {}
        if path in ("/tokenize", "/detokenize"):
            return (200, shown[path]) if back else (404, {})
        return 200, completion("A") if path.endswith("/completions") else listed("m", max_model_len=window)

    window = 2048
    with serving(reply) as served:
        run = mw.diagnose(Endpoint(served.url), "location", out=tmp_path / "a", **SMALL)
        assert any("tokenizer changes prompts" in note for note in run.manifest.notes) == bool(back)
        assert asked.count("/tokenize") == 1 or back
        if back:
            window = 98
            with pytest.raises(UserError, match="99 tokens, the context length of m is 98"):
                Endpoint(served.url).check_sequence([0], "a prompt")


WRITTEN = "generation-length,coherence,numerics,templates"


def test_probes_of_written_text_need_no_logits(tmp_path: Path) -> None:
    replies = ["A]. blue", "B] <4>", ""]

    def reply(path: str, body: dict[str, object]) -> tuple[int, object]:
        if not path.endswith("/completions"):
            return 200, listed("m")
        return 200, completion(replies[len(str(body["prompt"])) % 3], tokens=3, finish="stop")

    with serving(reply) as served:
        run = mw.diagnose(Endpoint(served.url), WRITTEN, out=tmp_path / "a", **SMALL)
        temperatures = {body["temperature"] for body in served.bodies if "huffle" in body["prompt"]}
    assert temperatures == {1.0}  # the closed forms of the puzzles are those of samples
    conditions = {name: [r.condition for r in run.records if r.probe == name] for name in WRITTEN.split(",")}
    assert {c["layout"] for c in conditions["generation-length"]} == {"as served"}
    assert {(c["rule"], c["speed"]) for c in conditions["coherence"]} == {("as served", "as served")}
    assert {c["setting"] for c in conditions["numerics"]} >= {"reference", "again", "draw 1", "draw 2"}
    assert {c["masks"] for c in conditions["templates"]} == {0}
    summary = run.summary
    assert summary["end_flood"]["value"] == 0.0
    assert summary["numerics"]["flips"][0]["flipped"] == 0  # the same request has the same answer here
    assert summary["aup"] == {}
    assert all(record.nll is None for record in run.records)
    assert run.prompt(run.records[-1])


def test_a_server_that_varies_its_answers_is_noisy(tmp_path: Path) -> None:
    turns = iter(range(10_000))

    def reply(path: str, body: dict[str, object]) -> tuple[int, object]:
        return (200, completion("ABC"[next(turns) % 3])) if path.endswith("/completions") else (200, listed("m"))

    with serving(reply) as served:
        run = mw.diagnose(Endpoint(served.url, requests=1), "numerics", out=tmp_path / "a", **SMALL | {"points": 2})
    found = run.summary["numerics"]
    assert found["flips"][0]["setting"] == "again" and found["flips"][0]["flipped"] > 0
    assert found["noise"][0]["dtype"] == "as served"


@pytest.mark.slow
def test_written_answers_equal_those_of_the_opened_model(tiny_llada: Model, tmp_path: Path) -> None:
    options = SMALL | {"points": 2}
    with serving(diffusion(tiny_llada, tokens_per_step=8)) as served:
        run = mw.diagnose(Endpoint(served.url), f"{WRITTEN},recall", out=tmp_path / "a", **options)
    settings = run_inputs(probes="generation-length", **options).settings
    own = settings.parameters["generation-length"] | {"blocks": ()}  # the server decodes one block
    alone = replace(settings, parameters={**settings.parameters, "generation-length": own})
    direct = mw.read_run(ask_probes(tiny_llada, alone, tmp_path / "b"))
    texts = {
        layout: {(r.point, r.condition["canvas"]): (r.predicted, r.correct) for r in one.records
                 if r.probe == "generation-length" and r.condition["layout"] == layout}
        for layout, one in (("as served", run), ("one block", direct))
    }  # fmt: skip
    assert texts["as served"] == texts["one block"] and len(texts["as served"]) == 6
    assert run.summary["numerics"]["flips"][0]["flipped"] == 0
    page = run.report().read_text()
    assert "decoded as served" in page and "the same requests again" in page


@pytest.mark.slow
def test_contrast_is_asked_with_the_questions_of_an_opened_model(tiny_llada: Model, tmp_path: Path) -> None:
    options = SMALL | {"distractors": 4}  # short prompts: 36 requests
    with serving(diffusion(tiny_llada)) as served:
        run = mw.diagnose(Endpoint(served.url), "contrast", out=tmp_path / "a", **options)
    direct = mw.diagnose(tiny_llada, "contrast", out=tmp_path / "b", **options)
    asked, known = (
        {(r.task, r.point, r.condition["examples"]): (r.predicted, r.correct) for r in one.records}
        for one in (run, direct)
    )
    assert asked == known and len(asked) == len(run.records) == 36
    assert run.scores["contrast_locality"].n == direct.scores["contrast_locality"].n > 0
