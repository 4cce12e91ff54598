"""Real runs of lm-evaluation-harness, and its numbers against our own."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import lm_eval
import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

import maskwise as mw
from helpers.checkpoints import CHAT, START, save
from helpers.known import shipped_tokenizer
from helpers.tiny import fast_dllm_net, sdar_net
from maskwise.decoding.likelihood import encode_pair, log_likelihoods
from maskwise.lm_eval import plugin
from maskwise.lm_eval.model import MaskwiseLM
from maskwise.lm_eval.tasks import FOLDER
from maskwise.support.errors import UserNotice
from maskwise.tasks.episodes import draw, mixed, render
from maskwise.tasks.prompts import encode_question, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

GSM8K = {"until": ["Question:", "</s>", "<|im_end|>"], "do_sample": False, "temperature": 0.0}  # as its file asks
ASKED = [("one two", " three"), ("one", " t"), ("", "start"), ("a longer context than before", " no")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save(tmp_path_factory.mktemp("checkpoint") / "llada", layers=1, init_std=0.6))


@pytest.fixture(scope="module")
def manager():
    return TaskManager(include_path=str(FOLDER), include_defaults=False)


def instances(kind, arguments):
    return [Instance(kind, {}, given, number) for number, given in enumerate(arguments)]


def evaluate(manager, tasks, **options):
    return lm_eval.simple_evaluate(
        model="maskwise", tasks=tasks, task_manager=manager, bootstrap_iters=0, log_samples=True, **options
    )


def test_the_16_task_files_ask_what_our_probes_ask(manager):
    names = [f"maskwise_{task.name.replace('-', '_')}" for task in TASKS]
    assert sorted(manager.all_subtasks) == sorted(names) and "maskwise" in manager.all_groups
    loaded = manager.load(["maskwise"])["tasks"]
    for task in (TASKS[0], TASKS[-1]):
        found = loaded[f"maskwise_{task.name.replace('-', '_')}"]
        episode = draw(task, load_words(), points=1000)
        document = found.test_docs()[7]
        asked = found.fewshot_context(document, num_fewshot=50, gen_prefix=found.resolve_field(document, "Answer:["))
        examples = "".join(render(question) for question in mixed(episode))
        assert asked == f"{examples}{episode.tests[7].asked}\nAnswer:["
        assert found.doc_to_target(document) == episode.tests[7].letter
        assert len(found.test_docs()) == 1000


def test_an_lm_eval_run_gives_our_own_accuracy_and_states_every_mask_setting(folder, manager):
    """The mask-count probe's question, four masks and one step, asked by lm-eval and by us."""
    arguments = {"pretrained": folder, "max_new_tokens": 4, "steps": 1}
    names = ["maskwise_country_smallest", "maskwise_animal_largest"]
    results = evaluate(manager, names, model_args=arguments, num_fewshot=3, limit=6, batch_size=4)
    model = mw.open(folder)
    for name in names:
        task = next(task for task in TASKS if task.name == name.removeprefix("maskwise_").replace("_", "-"))
        episode = draw(task, load_words(), points=1000)
        prompts = [
            opened(encode_question(model.tokenizer, mixed(episode)[:3], test), model.mask_id, 4)
            for test in episode.tests[:6]
        ]
        logits = model.predict([p.ids for p in prompts], [[p.row] for p in prompts])
        ours = [model.tokenizer.decode([int(one.argmax())]) for one in logits]
        theirs = [sample["resps"][0][0] for sample in results["samples"][name]]
        assert [text[:1] for text in theirs] == [letter if letter != "]" else "" for letter in ours]
        right = sum(letter == test.letter for letter, test in zip(ours, episode.tests, strict=False)) / 6
        assert results["results"][name]["exact_match,letter"] == pytest.approx(right)
    settings = results["config"]["maskwise"]
    assert settings["masks_generated"] == [4] and settings["decoding"]["steps"] == 1
    assert settings["decoding"]["rule"] == "low-confidence" and settings["mask_id"] == model.mask_id
    json.dumps(results["config"])


def test_loglikelihoods_of_a_run_are_those_of_the_library(folder, tmp_path):
    (tmp_path / "letters.py").write_text(
        "from datasets import Dataset\n"
        "def load(**others):\n"
        "    return {'test': Dataset.from_list([{'q': 'pick one:', 'a': 1}, {'q': 'and now another:', 'a': 0}])}\n"
    )
    (tmp_path / "letters.yaml").write_text(
        "task: letters\ncustom_dataset: !function letters.load\noutput_type: multiple_choice\ntest_split: test\n"
        'doc_to_text: "{{q}}"\ndoc_to_choice: ["x", "yes", "maybe"]\ndoc_to_target: "{{a}}"\n'
        "metric_list:\n  - metric: acc\n"
    )
    found = evaluate(
        TaskManager(include_path=str(tmp_path), include_defaults=False),
        ["letters"],
        model_args={"pretrained": folder, "masks": 2, "samples": 8},
    )
    model = mw.open(folder)
    samples = found["samples"]["letters"]
    pairs = [encode_pair(model, s["doc"]["q"], f" {choice}") for s in samples for choice in ("x", "yes", "maybe")]
    ours = [one.log_likelihood for one in log_likelihoods(model, pairs, samples=8, masks=2)]
    theirs = [response[0][0] for sample in samples for response in sample["resps"]]
    assert theirs == pytest.approx(ours, abs=1e-4)
    best = [max(range(3), key=lambda choice, first=first: ours[first + choice]) for first in (0, 3)]
    right = sum(choice == answer for choice, answer in zip(best, (1, 0), strict=True))
    assert found["results"]["letters"]["acc,none"] == right / 2
    assert found["config"]["maskwise"]["masks_after_answer"] == [2]
    assert found["config"]["maskwise"]["likelihood"] == {"method": "auto", "samples": 8, "masks": 2}


@pytest.mark.parametrize("kind", ["llada", "dream", "ar"])
def test_loglikelihood_and_greedy(kind, tmp_path):
    folder = save(tmp_path / kind, kind, layers=1)
    lm = MaskwiseLM(str(folder))
    found = lm.loglikelihood(instances("loglikelihood", ASKED))
    model = mw.open(folder)
    for (context, answer), (likelihood, greedy) in zip(ASKED, found, strict=True):
        pair = encode_pair(model, context, answer) if context else ([256], model.tokenizer(answer)["input_ids"])
        assert likelihood == pytest.approx(log_likelihoods(model, [pair])[0].log_likelihood, abs=1e-4)
        assert greedy == (mw.generate(model, [pair[0]], len(pair[1]))[0].ids == pair[1])
    prompt = model.tokenizer("one two")["input_ids"]
    said = model.tokenizer.decode(mw.generate(model, [prompt], 3)[0].ids)
    if model.tokenizer(f"one two{said}")["input_ids"] == [*prompt, *mw.generate(model, [prompt], 3)[0].ids]:
        assert lm.loglikelihood(instances("loglikelihood", [("one two", said)]))[0][1] is True


@pytest.mark.parametrize("kind", ["llada", "ar"])
def test_rolling_scores_every_token_once(kind, tmp_path):
    folder = save(tmp_path / kind, kind, layers=1)
    lm = MaskwiseLM(str(folder), samples=4)
    lm.model.window = 9
    (found,) = lm.loglikelihood_rolling(instances("loglikelihood_rolling", [("twenty letters here.",)]))
    model = mw.open(folder)
    ids = model.tokenizer("twenty letters here.")["input_ids"]
    # Eight tokens a window: 8, 8 and then the last 4 after the 5 before them.
    windows = [([256], ids[:8]), (ids[7:8], ids[8:16]), (ids[11:16], ids[16:])]
    expected = sum(one.log_likelihood for one in log_likelihoods(model, windows, samples=4))
    assert found == pytest.approx(expected, abs=1e-3)
    assert [token for _, scored in windows for token in scored] == ids


def test_generate_until_stops_at_the_given_texts(folder):
    model = mw.open(folder)
    lm = MaskwiseLM(folder, block=4, rule="threshold", tau=0.5, batch_size=2)
    contexts = ["one", "two words", "three"]
    plain = mw.generate(model, contexts, 8, block=4, rule="threshold", parameters={"tau": 0.5})
    ends = (256, 257)
    expected = []
    for generation in plain:
        length = next((n for n, token in enumerate(generation.ids) if token in ends), 8)
        expected.append(model.tokenizer.decode(generation.ids[:length], skip_special_tokens=True))
    asked = [(context, {"until": [], "max_gen_toks": 8, "do_sample": False}) for context in contexts]
    assert lm.generate_until(instances("generate_until", asked)) == expected
    stop = expected[0][2]
    asked = [("one", {"until": [stop], "max_gen_toks": 8})]
    assert lm.generate_until(instances("generate_until", asked)) == [expected[0][: expected[0].index(stop)]]
    assert lm.get_model_info()["maskwise"]["decoding"]["parameters"] == {"tau": 0.5}
    with pytest.raises(mw.UserError, match="num_beams"):
        lm.generate_until(instances("generate_until", [("one", {"num_beams": 4})]))


def test_tasks_say_how_to_sample_as_in_lm_eval(folder):
    lm = MaskwiseLM(folder, max_new_tokens=8)

    def said(**wishes):
        return lm.generate_until(instances("generate_until", [("one", wishes)]))

    greedy = said()
    assert said(**GSM8K) == said(do_sample=False, temperature=0.7) == said(do_sample=True) == greedy
    assert said(do_sample=True, temperature=1.0) == said(temperature=1.0) != greedy


@pytest.mark.parametrize("kind", ["llada", "ar"])
def test_what_is_sampled_depends_on_the_seed_and_the_request_alone(kind, tmp_path):
    folder = str(save(tmp_path / kind, kind, layers=1))
    wishes = {"max_gen_toks": 8, "do_sample": True, "temperature": 1.0}
    asked = instances("generate_until", [(context, wishes) for context in ("one", "two words", "three", "one")])
    lm = MaskwiseLM(folder, batch_size=1, seed=5)
    texts = lm.generate_until(asked)
    assert MaskwiseLM(folder, batch_size=3, seed=5).generate_until(asked) == texts
    assert lm.generate_until(asked[2:3]) == texts[2:3]
    # Equal requests, as `repeats` makes them, differ: the first of them is the same in any order.
    assert texts[0] != texts[3]
    assert lm.generate_until(asked[::-1]) == [texts[0], texts[2], texts[1], texts[3]]
    assert MaskwiseLM(folder, batch_size=3, seed=6).generate_until(asked) != texts


def test_likelihoods_depend_on_the_seed_and_the_request_alone(folder):
    lm = MaskwiseLM(folder, samples=4, seed=5, check_greedy=False)
    asked = instances("loglikelihood", ASKED)
    found = [one for one, _ in lm.loglikelihood(asked)]
    assert [one for one, _ in lm.loglikelihood(asked[::-1])] == pytest.approx(found[::-1], abs=1e-4)
    assert lm.loglikelihood(asked[:1])[0][0] == pytest.approx(found[0], abs=1e-4)
    other = MaskwiseLM(folder, samples=4, seed=6, check_greedy=False)
    assert other.loglikelihood(asked[:1])[0][0] != pytest.approx(found[0], abs=1e-4)


@pytest.mark.parametrize("starts", [True, False])
def test_an_autoregressive_model_gets_the_likelihoods_of_lm_evals_own_model(starts, tmp_path):
    folder = str(save(tmp_path / "ar", "ar", starts=starts, layers=1))
    asked = [*ASKED, ("", " "), ("one\n", "two"), ("one \t\n ", "two"), ("one", "\ntwo")]
    if starts:
        asked += [("", "<|start|>ab"), ("  ", "ab"), ("<|start|>one", " two")]
    theirs = HFLM(folder, device="cpu", batch_size=1, dtype="float32")
    ours = MaskwiseLM(folder, dtype="float32")
    found = ours.loglikelihood(instances("loglikelihood", asked))
    expected = theirs.loglikelihood(instances("loglikelihood", asked), disable_tqdm=True)
    assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], abs=1e-4)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    for context, answer in asked:
        if context:
            assert encode_pair(ours.model, context, answer) == theirs._encode_pair(context, answer)


@pytest.mark.parametrize("kind", ["llada", "ar"])
def test_a_start_token_is_never_scored(kind, tmp_path):
    folder = save(tmp_path / kind, kind, starts=True, layers=1)
    lm, model = MaskwiseLM(str(folder), samples=4), mw.open(folder)
    letters = model.tokenizer("start", add_special_tokens=False)["input_ids"]
    expected = log_likelihoods(model, [([START], letters)], samples=4)[0].log_likelihood
    assert encode_pair(model, "", "start") == ([START], letters)
    assert lm.loglikelihood(instances("loglikelihood", [("", "start")]))[0][0] == pytest.approx(expected, abs=1e-4)
    for text in ("start", "<|start|>start"):
        (found,) = lm.loglikelihood_rolling(instances("loglikelihood_rolling", [(text,)]))
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("masks", [0, 2, 3, 7])
def test_greedy_is_judged_with_the_masks_of_the_likelihood_whatever_the_length(folder, masks):
    """The answer's own masks are filled in, the surest first, while the masks after it stay."""
    lm, model = MaskwiseLM(folder, masks=masks), mw.open(folder)
    prompt = model.tokenizer("one two")["input_ids"]
    for length in (1, 3):
        canvas = [*prompt, *[model.mask_id] * (length + masks)]
        for _ in range(length):
            rows = [row for row in range(len(prompt), len(prompt) + length) if canvas[row] == model.mask_id]
            best, tokens = model.predict([canvas], [rows])[0].log_softmax(-1).max(-1)
            surest = int(best.argmax())
            canvas[rows[surest]] = int(tokens[surest])
        said = canvas[len(prompt) : len(prompt) + length]
        wrong = [*said[:-1], (said[-1] + 1) % 256]
        assert [greedy for _, greedy in lm._likelihoods([(prompt, said), (prompt, wrong)])] == [True, False]
    settings = lm.get_model_info()["maskwise"]
    assert settings["masks_after_answer"] == [masks] and settings["masks_of_greedy_check"] == [3 + masks]


def test_long_prompts_keep_their_end(folder):
    lm = MaskwiseLM(folder)
    lm.model.window = 12
    (text,) = lm.generate_until(instances("generate_until", [("x" * 40 + "end", {"max_gen_toks": 4})]))
    (short,) = lm.generate_until(instances("generate_until", [("xxxxxend", {"max_gen_toks": 4})]))
    assert text == short
    with pytest.raises(mw.UserError, match="leave no room"):
        lm.generate_until(instances("generate_until", [("one", {"max_gen_toks": 12})]))


def test_chats_are_written_by_the_template_and_cut_for_a_prefix(tmp_path):
    lm = MaskwiseLM(str(save(tmp_path / "chat", chat_template=CHAT, layers=1)))
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Answer:["}]
    assert lm.apply_chat_template(turns[:1]) == "<|user|>hi<|a|>"
    assert lm.apply_chat_template(turns, add_generation_prompt=False) == "<|user|>hi<|assistant|>Answer:["
    assert lm.chat_template(True) == CHAT and lm.tokenizer_name


def test_lm_eval_alone_applies_the_chat_template(tmp_path):
    """Its own flag has been seen to when a request comes: the context is taken as it stands."""
    folder = save(tmp_path / "chat", chat_template=CHAT, layers=1)
    lm, model = MaskwiseLM(str(folder)), mw.open(folder)
    (text,) = lm.generate_until(instances("generate_until", [("hello", {"max_gen_toks": 4})]))
    (plain,) = mw.generate(model, ["hello"], 4, chat=False)
    (chat,) = mw.generate(model, ["hello"], 4)
    assert text == plain.text and plain.ids != chat.ids


def test_wrong_arguments_are_named(folder):
    with pytest.raises(mw.UserError, match="unknown unmasking strategy 'best'"):
        MaskwiseLM(folder, rule="best")
    with pytest.raises(mw.UserError, match="has no parameter 'tua'"):
        MaskwiseLM(folder, rule="threshold", tua=0.9)


def test_under_the_command_lm_eval_a_mistake_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/lm_eval"])
    with pytest.raises(SystemExit) as ended:
        MaskwiseLM("tiny-lada")
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("maskwise: no model 'tiny-lada': did you mean tiny-llada?")


def test_import_torch_is_left_alone_where_lm_eval_is_another_release_or_not_used(monkeypatch):
    other = ModuleType("lm_eval")
    other.__version__ = "0.4.8"  # its registry has other names: to import from it would break `import torch`
    monkeypatch.setitem(sys.modules, "lm_eval", other)
    plugin.register()
    light = "import sys, maskwise.lm_eval.plugin as p; p.register(); print({'torch', 'lm_eval'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_the_command_lm_eval_finds_the_model_by_its_name(folder, tmp_path):
    command = [
        str(Path(sys.executable).parent / "lm_eval"),
        "--model",
        "maskwise",
        "--model_args",
        f"pretrained={folder},rule=threshold,tau=0.5,canvas=growing,block=2",
        "--include_path",
        str(FOLDER),
        "--tasks",
        "maskwise_country_smallest",
        "--limit",
        "2",
        "--num_fewshot",
        "2",
        "--output_path",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    (written,) = (tmp_path / "out").glob("**/results_*.json")
    decoding = json.loads(written.read_text())["config"]["maskwise"]["decoding"]
    assert (decoding["rule"], decoding["parameters"], decoding["canvas"]) == ("threshold", {"tau": 0.5}, "growing")


@pytest.mark.parametrize("make", [sdar_net, fast_dllm_net])
def test_a_block_diffusion_model_is_scored_and_decoded_block_by_block(make, tmp_path):
    make(vocab=2056).save_pretrained(tmp_path)
    shipped_tokenizer().save_pretrained(tmp_path)
    asked, model = MaskwiseLM(str(tmp_path), samples=8, masks=2, max_new_tokens=9), mw.open(tmp_path)
    pairs = [*ASKED, ("one two", " three four five six seven eight nine")]  # over several blocks
    with pytest.warns(UserNotice, match="visible masks after an answer: 0 to 2 of 2"):
        theirs = [found for found, _ in asked.loglikelihood(instances("loglikelihood", pairs))]
    with pytest.warns(UserNotice):
        ours = log_likelihoods(model, [encode_pair(model, *pair) for pair in pairs], samples=8, masks=2)
    assert theirs == pytest.approx([one.log_likelihood for one in ours], abs=1e-4)
    (text,) = asked.generate_until(instances("generate_until", [("one two", {"until": []})]))
    (written,) = mw.generate(model, "one two", max_new_tokens=9)
    assert text == asked._cut(written.ids, ())
    page = asked.get_model_info()["maskwise"]
    assert page["block"] == model.block
    assert page["masks_after_answer"] == [2] and page["visible_after_answer"] == sorted({one.visible for one in ours})
