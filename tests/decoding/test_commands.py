"""The commands generate and score, in process."""

import io
import json
import sys

import pytest
from datasets import Dataset
from rich.console import Console
from typer.testing import CliRunner

import maskwise as mw
from helpers.checkpoints import CHAT, END, MASK, TURN_END, save
from helpers.outputs import departures
from maskwise.cli import app
from maskwise.decoding.checks import end_tokens
from maskwise.decoding.divergence import Divergence
from maskwise.decoding.generate import generate
from maskwise.decoding.likelihood import encode_pair, log_likelihoods
from maskwise.decoding.live_canvas import LiveCanvas
from maskwise.decoding.prompt_files import TRY
from maskwise.decoding.prompt_ids import encode_prompts
from maskwise.support.errors import UserError, UserNotice
from maskwise.support.terminal import safe_text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save(tmp_path_factory.mktemp("checkpoint") / "llada"))


@pytest.fixture(scope="module")
def model(folder):
    return mw.open(folder)


def run(*arguments, status=0, given=None):
    """Standard output of the command."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=given)
    assert done.exit_code == status, done.output
    return done


def test_plain_prints_the_new_text_only(folder, model):
    done = run("generate", folder, "hello", "-n", 8, "--plain")
    assert done.stdout == safe_text(generate(model, ["hello"], 8)[0].text) + "\n"


def test_a_cache_without_a_block_says_what_it_does(folder, model):
    """And does it: there is one block, so nothing but the prompt is read from the cache, which the first pass fills."""
    done = run("generate", folder, "hello", "-n", 8, "--cache", "prefix")
    assert "--cache prefix without --block: one block, so the cache holds the prompt alone" in done.stderr
    assert "once; --block 4 decodes block by block" in done.stderr
    printed = run("generate", folder, "hello", "-n", 7, "--cache", "prefix").stderr
    assert "without --block" in printed and "block by block" not in printed  # no block of several tokens divides 7
    assert done.stdout == safe_text(generate(model, ["hello"], 8, block=8, cache="prefix")[0].text) + "\n"
    assert "without --block" not in run("generate", folder, "hello", "-n", 8, "--cache", "prefix", "--block", 4).stderr


def test_without_a_prompt_one_to_try_is_shown_and_continued(folder, model):
    done = run("generate", folder, "-n", 4)
    assert TRY in done.stderr and done.stdout == safe_text(generate(model, [TRY], 4)[0].text) + "\n"
    assert "name the model first" in run("generate", "Once upon a time", status=2).stderr


def test_the_prompt_to_try_is_one_that_tiny_llada_can_do():
    (found,) = generate(mw.open("tiny-llada"), [TRY], 8)
    assert found.text.startswith("colour].")


def test_json_is_one_object_with_the_full_trace(folder, model):
    done = run(
        "generate",
        folder,
        "hello",
        "-n",
        8,
        "--block",
        4,
        "--rule",
        "threshold",
        "--parameter",
        "tau=0.3",
        "--cache",
        "dual",
        "--json",
    )
    found = json.loads(done.stdout)
    settings, (trace,) = found["settings"], found["generations"]
    expected = generate(model, ["hello"], 8, block=4, rule="threshold", parameters={"tau": 0.3}, cache="dual")[0]
    assert trace["ids"] == expected.ids and trace["order"] == expected.order and trace["text"] == expected.text
    assert (trace["masks"], trace["prompt_tokens"], trace["forwards"]) == (8, 5, expected.forwards)
    assert trace["steps"] == expected.forwards
    assert (settings["rule"], settings["parameters"], settings["cache"]) == ("threshold", {"tau": 0.3}, "dual")
    assert (settings["canvas"], settings["masks"], settings["approximate"]) == ("blocks", 8, True)


def test_end_tokens_may_be_named_on_the_command_line(folder, model):
    end = generate(model, ["hello"], 8, rule="left-to-right")[0].ids[2]
    found = json.loads(
        run(
            "generate", folder, "hello", "-n", 8, "--rule", "left-to-right", "--early-stop", "--end-id", end, "--json"
        ).stdout
    )
    assert found["generations"][0]["ids"][3:] == [end] * 5 and found["settings"]["end_ids"] == [end]


def test_prompts_from_files_and_standard_input(folder, model, tmp_path):
    texts = ["one", "two\u2028words", "three"]  # U+2028 ends a line for str.splitlines, not for JSON lines
    plain, lines = tmp_path / "prompts.txt", tmp_path / "prompts.jsonl"
    plain.write_text("one\n\ntwo\u2028words\nthree\n")
    lines.write_text("".join(json.dumps({"prompt": text}, ensure_ascii=False) + "\n" for text in texts))
    expected = [one.text for one in generate(model, texts, 4)]
    for arguments, given in ((["--file", plain], None), (["--file", lines], None), (["-"], plain.read_text())):
        done = run("generate", folder, *arguments, "-n", 4, "--json", "--batch", 2, given=given)
        assert [trace["text"] for trace in json.loads(done.stdout)["generations"]] == expected


def test_traces_go_to_a_jsonl_file_and_never_over_another(folder, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run("generate", folder, "hello", "-n", 4, "--out", out).stdout == ""
    (trace,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert trace["prompt"] == "hello" and len(trace["ids"]) == 4
    assert "exists already" in run("generate", folder, "hello", "-n", 4, "--out", out, status=2).stderr


def test_the_file_of_traces_is_there_when_it_is_whole(folder, tmp_path, monkeypatch):
    from maskwise.decoding import generate as generating

    file, out = tmp_path / "prompts.txt", tmp_path / "out.jsonl"
    file.write_text("one\ntwo\nthree\n")
    calls, decode_batch = [], generating._decode_batch

    def stopped_at_the_third(*given, **named):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return decode_batch(*given, **named)

    arguments = ["generate", folder, "--file", file, "-n", 4, "--batch", 1, "--out", out]
    monkeypatch.setattr(generating, "_decode_batch", stopped_at_the_third)
    stopped = run(*arguments, status=2)
    assert "the finished prompts are in" in stopped.stderr and not out.exists()
    assert len((tmp_path / "out.jsonl.partial").read_text().splitlines()) == 2
    monkeypatch.undo()
    run(*arguments)
    assert [json.loads(line)["prompt"] for line in out.read_text().splitlines()] == ["one", "two", "three"]
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_a_prompt_that_does_not_fit_is_found_before_any_is_decoded(folder, tmp_path):
    file, out = tmp_path / "prompts.txt", tmp_path / "out.jsonl"
    file.write_text("one\ntwo\n" + "long " * 200 + "\n")
    refused = run("generate", folder, "--file", file, "-n", 4, "--batch", 1, "--out", out, status=2)
    assert "prompt 3 has" in refused.stderr and not out.exists()
    refused = run("generate", folder, "one", "-n", 4, "--out", tmp_path / "no" / "out.jsonl", status=2)
    assert "there is no folder" in refused.stderr


def test_masks_in_the_prompt_are_filled_in(folder):
    found = json.loads(run("generate", folder, "ab<|mask|>d", "-n", 0, "--json").stdout)
    (trace,) = found["generations"]
    assert trace["masks"] == 1 and trace["text"].startswith("ab") and trace["text"].endswith("d")


def test_the_chat_template_is_used_where_there_is_one(folder, tmp_path):
    instruct = save(tmp_path / "instruct", chat_template=CHAT)
    opened = mw.open(instruct)
    asked = "<|user|>hello<|a|>"
    assert encode_prompts(opened, ["hello"], chat=True) == [opened.tokenizer(asked)["input_ids"]]
    assert encode_prompts(opened, ["hello"], chat=False) == [opened.tokenizer("hello")["input_ids"]]
    lengths = {}
    for flag in ("--chat", "--no-chat", None):
        done = run("generate", instruct, "hello", "-n", 2, "--json", *([flag] if flag else []))
        lengths[flag] = json.loads(done.stdout)["generations"][0]["prompt_tokens"]
    assert lengths == {"--chat": len(asked), None: len(asked), "--no-chat": 5}
    assert "no chat template" in run("generate", folder, "hello", "--chat", status=2).stderr


def test_the_library_treats_chats_as_the_command_does_and_leaves_token_ids_alone(tmp_path, model):
    instruct = save(tmp_path / "instruct", chat_template=CHAT)
    opened = mw.open(instruct)
    asked, plain = (opened.tokenizer(text)["input_ids"] for text in ("<|user|>hello<|a|>", "hello"))
    (default,) = mw.generate(opened, ["hello"], 4)
    assert default.sequence[:-4] == asked
    assert default == mw.generate(opened, ["hello"], 4, chat=True)[0] == mw.generate(opened, [asked], 4)[0]
    assert mw.generate(opened, ["hello"], 4, chat=False)[0].sequence[:-4] == plain
    for chat in (None, True, False):
        assert mw.generate(opened, [plain], 4, chat=chat)[0].sequence[:-4] == plain
    typed = json.loads(run("generate", instruct, "hello", "-n", 4, "--json").stdout)
    assert typed["generations"][0]["ids"] == default.ids and typed["settings"]["chat"] is True
    assert mw.generate(model, ["hello"], 4) == mw.generate(model, ["hello"], 4, chat=False)  # it has no template
    with pytest.raises(mw.UserError, match="no chat template"):
        mw.generate(model, ["hello"], 4, chat=True)


def test_end_tokens_are_those_of_the_model_and_of_its_turns(model):
    assert end_tokens(model) == (END, TURN_END)


def test_divergence_is_measured_and_shown(folder, model):
    arguments = ("generate", folder, "hello there", "-n", 16, "--block", 8, "--cache", "dual", "--divergence")
    found = json.loads(run(*arguments, "--json").stdout)["divergence"]
    exact = generate(model, ["hello there"], 16, block=8)
    close = generate(model, ["hello there"], 16, block=8, cache="dual")
    same = [one == two for one, two in zip(exact[0].ids, close[0].ids, strict=True)]
    assert found["tokens"] == 16 and found["agreement"] == pytest.approx(sum(same) / 16)
    assert found["first"] == (same.index(False) if False in same else None)
    assert f"{sum(same) / 16:.1%} of 16 tokens" in run(*arguments).stderr
    assert "compares greedy decoding" in run("generate", folder, "hello", "--divergence", status=2).stderr
    assert Divergence.between(exact, exact) == Divergence(16, 1.0, None)


DRAWN = [
    ("random", None),
    ("remdm", None),
    ("dream-origin", None),
    ("dream-entropy", "alg_temp=0.5"),
    ("dream-maskgit-plus", "alg_temp=0.5"),
    ("dream-topk-margin", "alg_temp=0.5"),
]


@pytest.mark.parametrize(("rule", "parameter"), DRAWN)
def test_an_exact_cache_does_not_diverge_under_rules_that_draw(folder, tmp_path, rule, parameter):
    file = tmp_path / "prompts.txt"
    file.write_text("one\ntwo words\nthree\n")
    parameters = ["--parameter", parameter] if parameter else []
    found = run(
        "generate",
        folder,
        "--file",
        file,
        "-n",
        8,
        "--block",
        4,
        "--rule",
        rule,
        *parameters,
        "--cache",
        "prefix",
        "--refresh",
        1,
        "--divergence",
        "--batch",
        2,
        "--json",
    )
    assert json.loads(found.stdout)["divergence"] == {"tokens": 24, "agreement": 1.0, "first": None}


@pytest.mark.parametrize("kind", ["llada", "ar"])
def test_samples_depend_on_the_seed_and_the_prompt_alone(kind, tmp_path, monkeypatch):
    folder, file = save(tmp_path / kind, kind), tmp_path / "prompts.txt"
    texts = ["one", "two words", "three", "one"]

    def sampled(prompts, *options):
        file.write_text("\n".join(prompts))
        options = ("-n", 8, "--temperature", 1, "--json", *options)
        return [
            one["ids"] for one in json.loads(run("generate", folder, "--file", file, *options).stdout)["generations"]
        ]

    found = sampled(texts, "--seed", 5, "--batch", 1)
    assert sampled(texts, "--seed", 5, "--batch", 3) == found
    assert found[0] != found[3]  # a prompt given twice is sampled twice, and the first time as if alone
    assert sampled(texts[:1], "--seed", 5) == found[:1]
    assert sampled(texts[::-1], "--seed", 5) == [found[0], found[2], found[1], found[3]]
    assert sampled(texts, "--seed", 6) != found


def test_the_live_canvas_samples_the_same(model):
    texts = ["one", "two words", "three"]
    options = {"max_new_tokens": 8, "rule": "random", "temperature": 1.0, "seed": 5}
    screen = Console(file=io.StringIO(), force_terminal=True, width=60)
    with LiveCanvas(model, "random", screen) as canvas:
        live = mw.generate(model, texts, batch=1, on_step=canvas.show, **options)
    plain = mw.generate(model, texts, batch=3, **options)
    assert plain == live and plain.traces == live.traces


def test_steps_are_those_taken_whatever_survived(folder):
    def trace(*options):
        return json.loads(run("generate", folder, "hello", "-n", 4, "--json", *options).stdout)["generations"][0]

    assert trace("--rule", "remdm", "--steps", 16)["steps"] == 16
    assert trace("--rule", "dream-origin", "--steps", 12)["steps"] == 12
    guided = trace("--guidance", 1)
    assert (guided["steps"], guided["forwards"]) == (4, 8)


def test_the_canvas_fills_in_live(model):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60)
    prompt = model.tokenizer("hello")["input_ids"]
    with LiveCanvas(model, "low-confidence", console) as canvas:
        (found,) = generate(model, [prompt], 4, on_step=canvas.show)
    shown = screen.getvalue()
    for left in (3, 2, 1, 0):
        assert f"{left} masks left" in shown
    assert "░░" in shown
    assert canvas.paint(found.sequence).plain == "hello" + safe_text(found.text)
    half = [*prompt, MASK, found.ids[1], MASK, MASK]
    assert canvas.paint(half).plain.endswith("░░")


def test_a_canvas_taller_than_the_terminal_is_not_repeated(model):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, height=5)
    prompt = model.tokenizer("first\n" + "more\n" * 9 + "last")["input_ids"]
    with LiveCanvas(model, "low-confidence", console) as canvas:
        generate(model, [prompt], 4, on_step=canvas.show)
    assert screen.getvalue().count("first") == 1
    assert screen.getvalue().count("last") > 4


def test_a_terminal_gets_the_live_canvas(folder, monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", screen)
    app(["generate", folder, "hello", "-n", "3"], standalone_mode=False)
    assert "0 masks left" in screen.getvalue()


def test_autoregressive_models_generate_and_score_by_the_same_commands(tmp_path):
    ar = save(tmp_path / "ar", "ar")
    found = json.loads(run("generate", ar, "hello", "-n", 4, "--json").stdout)
    assert found["settings"]["kind"] == "autoregressive" and found["generations"][0]["order"] == [0, 1, 2, 3]
    assert "applies to masked models only" in run("generate", ar, "hello", "--rule", "threshold", status=2).stderr
    printed = run("generate", ar, "hello", "--cache", "dual", status=2).stderr
    assert "masked models only" in printed and "without --block" not in printed


def test_score_takes_a_file_a_list_or_a_dataset_and_a_name_or_a_model(folder, model, tmp_path):
    pairs = [{"prompt": "It was", "answer": " a dark night"}, {"prompt": "Once", "answer": " upon", "id": 7}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    listed = mw.score(model, pairs, samples=4)
    assert listed == mw.score(model, Dataset.from_list(pairs), samples=4)
    found = mw.score(folder, str(tmp_path / "pairs.jsonl"), samples=4)
    assert [one.log_likelihood for one in found] == pytest.approx([one.log_likelihood for one in listed], abs=1e-4)
    with pytest.raises(UserError, match=r"item 2 .*: write prompt and answer"):
        mw.score("no such model", [pairs[0], {"prompt": "It"}])
    renamed = [{"prompt": pair["prompt"], "completion": pair["answer"]} for pair in pairs]
    assert mw.score(model, renamed, samples=4) == listed
    mask = model.tokenizer.decode([model.mask_id])
    with pytest.raises(UserError, match="request 1: the answer contains the mask token"):
        mw.score(model, [{"prompt": "It was", "answer": f" a {mask}"}])
    with pytest.raises(UserError, match="the list is empty"):
        mw.score(model, [])


def test_score_names_the_estimator_and_the_passes(folder, model, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "the answer is ", "answer": "b", "id": 7}\n{"prompt": "x", "answer": "yes"}\n')
    found = json.loads(run("score", folder, "--data", data, "--masks", 2, "--json").stdout)
    pairs = [encode_pair(model, "the answer is ", "b"), encode_pair(model, "x", "yes")]
    expected = log_likelihoods(model, pairs, masks=2)
    assert [line["log_likelihood"] for line in found["scores"]] == pytest.approx([s.log_likelihood for s in expected])
    assert [line["method"] for line in found["scores"]] == ["exact", "exact"]
    assert found["scores"][0]["id"] == 7 and found["settings"]["masks"] == 2
    assert [line["masks"] for line in found["scores"]] == [2, 2]
    head, *lines, total = run("score", folder, "--data", data, "--method", "chain", "--masks", 2).stdout.splitlines()
    assert head.split() == ["log-likelihood", "tokens", "estimator", "passes", "masks", "answer"]
    assert [line.split()[1:] for line in lines] == [["2", "chain", "2", "2", "'b'"], ["3", "chain", "3", "2", "'yes'"]]
    numbers = [float(line.split()[0]) for line in (*lines, total)]
    assert numbers[2] == pytest.approx(sum(numbers[:2]), abs=2e-4)
    assert total.split()[1:4] == ["5", "total", "5"] and total.endswith(f"{numbers[2] / 5:.4f} nats per token")
    assert max(map(len, (head, *lines, total))) <= 80


def test_score_of_a_block_diffusion_model_states_the_visible_masks(folder, tmp_path):
    save(tmp_path / "sdar", "sdar", block_size=8)
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "the", "answer": " b"}\n')  # five tokens of eight
    with pytest.warns(UserNotice, match="visible masks after an answer: 3 of 20"):
        found = json.loads(run("score", tmp_path / "sdar", "--data", data, "--masks", 20, "--json").stdout)
    assert [(line["masks"], line["visible"]) for line in found["scores"]] == [(20, 3)]
    assert departures(found, "score") == []
    plain = json.loads(run("score", folder, "--data", data, "--masks", 20, "--json").stdout)
    assert "visible" not in plain["scores"][0]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["hello", "-n", "0"], "max_new_tokens 0 leaves nothing to generate"),
        (["hello", "-n", "8", "--steps", "16"], "16 steps for 8 masks"),
        (["hello", "--rule", "best"], "unknown unmasking strategy 'best'"),
        (["hello", "--parameter", "tau"], "'tau' is not a parameter and its value"),
        (["hello" * 200], "the context length of"),
        (["hello", "--file", "nowhere.txt"], "exclude each other"),
        (["--file", "nowhere.txt"], "cannot read nowhere.txt"),
        (["hello", "--batch", "0"], "'--batch'"),
        (["-"], "standard input holds no prompt"),
    ],
)
def test_bad_input_to_generate_is_one_line_and_status_2(folder, arguments, problem):
    done = run("generate", folder, *arguments, status=2, given="")
    assert problem in done.stderr and len(done.stderr.strip().splitlines()) == 1 and done.stdout == ""


def test_a_model_without_a_mask_is_one_line_and_status_2(folder, tmp_path, monkeypatch):
    model = mw.open(folder)
    model.mask_id = None

    def maskless(*arguments, **options):
        return model

    monkeypatch.setattr("maskwise.models.checkpoints.opening.open", maskless)
    assert "has no mask token" in run("generate", folder, "hello", status=2).stderr


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty"),
        ('{"prompt": "a", "answer": "b"}\nnonsense\n', "line 2 is not valid JSON"),
        ('{"prompt": "a"}\n', "line 1 has the keys prompt: write prompt and answer"),
        ('{"prompt": "a", "answer": ""}\n', "answer of no tokens"),
    ],
)
def test_bad_data_for_score_is_named_by_its_line(folder, tmp_path, content, problem):
    data = tmp_path / "data.jsonl"
    data.write_text(content)
    done = run("score", folder, "--data", data, status=2)
    assert problem in done.stderr and len(done.stderr.strip().splitlines()) == 1
