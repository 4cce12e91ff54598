"""Checkpoints of strangers: what would hang or fill the memory is refused before anything is built."""

import json
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

import maskwise as mw
from helpers.checkpoints import byte_tokenizer, save
from helpers.report_runs import write_run
from helpers.tiny import dream_net, edit_config, llada2_net, qwen_net, sdar_net
from maskwise.decoding.prompt_ids import encode_prompts
from maskwise.models import peft_access
from maskwise.models.checkpoints.cards import body_of, licence_of, public_name
from maskwise.models.checkpoints.catalog import describe_checkpoint
from maskwise.models.checkpoints.locations import ZOO, refuse_unknown_model
from maskwise.models.checkpoints.verify import code_from_elsewhere
from maskwise.models.tokenizers import chat
from maskwise.models.tokenizers.chat import render_chat
from maskwise.models.tokenizers.tokenizer_limits import ends_in_time
from maskwise.support.errors import UserError, UserNotice

TURNS = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    "change",
    [{"n_layers": 10**9}, {"vocab_size": 10**30}, {"d_model": -1}, {"n_layers": 1e400}, {"mlp_ratio": 1e300}],
)
def test_sizes_are_bounded_before_anything_is_built(tmp_path, change):
    edit_config(save(tmp_path), **change)
    began = time.monotonic()
    for read in (mw.open, lambda folder: describe_checkpoint(str(folder))):
        with pytest.raises(UserError, match=r"config.json"):
            read(tmp_path)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("name", ["rope_theta", "max_sequence_length", "rms_norm_eps", "n_layers"])
def test_null_is_not_taken_for_a_number(tmp_path, name):
    edit_config(save(tmp_path), **{name: None})
    with pytest.raises(UserError, match=name):
        mw.open(tmp_path)


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("make", "rope", "name", "values"),
    [
        (dream_net, YARN, "mscale", ("x", [1], {}, -1, 1e300, True)),
        (dream_net, PLAIN_ROPE, "original_max_position_embeddings", ("a", -1, 0)),
        (dream_net, YARN, "factor", (0, -1, "4", 0.5, [2], 1e300)),
        (sdar_net, YARN, "beta_slow", (0, "x")),
        (qwen_net, YARN, "factor", (0, "x")),
        (qwen_net, LLAMA3, "low_freq_factor", (0,)),
        (llada2_net, PLAIN_ROPE, "rope_theta", (0, "x", -1.0, 1e-300)),
    ],
)
def test_numbers_of_rotary_positions_are_checked_in_every_family(tmp_path, make, rope, name, values):
    make().save_pretrained(tmp_path)
    edit_config(tmp_path, rope_parameters=rope)
    assert mw.open(tmp_path).predict([[1, 2, 3]], [[2]])[0][:, :63].isfinite().all()
    for value in values:
        edit_config(tmp_path, rope_parameters=rope | {name: value})
        with pytest.raises(UserError, match=rf"^[^\n]*config.json[^\n]*{name}[^\n]*$"):
            mw.open(tmp_path)


def test_numbers_of_rotary_positions_are_checked_for_each_type_of_layer(tmp_path):
    edit_config(save(tmp_path), rope_scaling={"full_attention": {"rope_type": "yarn", "factor": 0}})
    with pytest.raises(UserError, match=r"rope_scaling\.full_attention\.factor is 0, not a number from 1"):
        mw.open(tmp_path)


def test_a_prefix_that_the_merges_lack_is_refused(tmp_path):
    """The tokenizers library would cut more off a merge than it has, and panic."""
    mw.open("tiny-llada").tokenizer.save_pretrained(save(tmp_path))
    mw.open(tmp_path)
    file = tmp_path / "tokenizer.json"
    stored = json.loads(file.read_text())
    for prefix in ("##", "a" * 5000):
        stored["model"]["continuing_subword_prefix"] = prefix
        file.write_text(json.dumps(stored))
        with pytest.raises(UserError, match="continuing_subword_prefix"):
            mw.open(tmp_path)


TOO_LARGE, COPIED = "larger than any weight of the adapter", "copies layers"


@pytest.mark.parametrize(
    "change, said",
    [
        ({"r": 2**31}, TOO_LARGE),
        ({"rank_pattern": {"q_proj": 10**9}}, TOO_LARGE),
        ({"layer_replication": [[0, 2]] * 10**5}, COPIED),
    ],
)
def test_an_adapter_of_more_than_its_weights_is_refused_before_memory_is_taken(tmp_path, change, said):
    for file in (ZOO / "tiny-llada+distracted").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=said):
        mw.open("tiny-llada", adapter=tmp_path)


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 3000, "a\x00b", "+" * 300, "tiny-llada+" + "a" * 5000])
def test_a_name_that_no_file_has_is_one_line(name):
    with pytest.raises(UserError, match="no model"):
        refuse_unknown_model(name)
    with pytest.raises(UserError, match="no model"):
        mw.open(name)
    assert isinstance(public_name(name), str)


@pytest.mark.parametrize("change", [{"vocab_size": 2**30}, {"d_model": 2**20}, {"n_layers": 999}])
def test_a_configuration_of_more_than_the_weights_is_refused_before_memory_is_taken(tmp_path, change):
    edit_config(save(tmp_path), **change)
    with pytest.raises(UserError, match=r"describes more than the .* numbers in .* weights"):
        mw.open(tmp_path)


@pytest.mark.parametrize(
    "template, said",
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes more than"),
        ("{{ 10 ** 10 ** 8 }}", "computes powers"),
        ("{{ 'x' * 1000000000 }}", "more than 20 million characters"),
        ("{{ '%9999999999d' % 1 }}", "a width beyond 999"),
        ("{% set f = '%99999' ~ '99999d' %}{{ f % 1 }}", "a width beyond 999"),
        ("{{ '{:9999999999d}'.format(1) }}", "a width beyond 999"),
        ("{{ '%9999999999d'|format(1) }}", "a width beyond 999"),
        ("{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "20 million"),
        ("{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}", "20 million"),
        ("{{ ('x' * 1000000)|replace('x', 'y' * 1000000) }}", "more than 20 million characters"),
        ("{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}", "more than 20 million characters"),
        ("{{ 'x'.center(9999999999) }}", "more than 20 million characters"),
        ("{{ (range(999)|list)|join('x' * 1000000) }}", "more than 20 million characters"),
        ("{{ messages|map('replace', 'e', 'x' * 10000000)|list }}", "more than 20 million characters"),
        ("{{ [1]|tojson(indent=999999999) }}", "more than 20 million characters"),
        ("{{ messages[99].content }}", "refuses these turns"),
        ("{{ 1 // 0 }}", "cannot be used"),
        ("{% for m in %}", "refuses these turns"),
        ("{{ ''.__class__.__mro__ }}", "refuses these turns"),
    ],
)
def test_a_chat_template_is_bounded(monkeypatch, template, said):
    """In any thread: the studio's are not the main one."""
    monkeypatch.setattr(chat, "SECONDS", 0.3 if said == "takes more than" else 60)  # which the others never reach
    for render in (render_chat, ThreadPoolExecutor().submit(render_chat, byte_tokenizer(template), TURNS).result):
        with pytest.raises(UserError, match=said) as caught:
            render(*((byte_tokenizer(template), TURNS) if render is render_chat else ()))
        assert "\n" not in str(caught.value)


def test_each_of_several_chat_templates_is_bounded():
    tokenizer = byte_tokenizer("")
    tokenizer.chat_template = {"default": "{{ 10 ** 10 ** 8 }}", "tools": ""}
    with pytest.raises(UserError, match="computes powers"):
        render_chat(tokenizer, TURNS)


CHATML = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content | trim + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
EVERYTHING = """{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.content is string %}
{% set ns.n = ns.n + 1 %}
{% generation %}{{ m.content.split('x')[-1].lstrip() }}{% endgeneration %}{% endif %}{{ loop.index0 % 2 }}{% endfor %}
{{ messages|tojson }}{{ [1, 2]|join(',') }}{{ {'a': 1}|tojson(indent=2) }}{{ '%s-%d' % ('a', 3) }}{{ 'a' ~ 1 ~ 'b' }}
{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages[::-1][0].role }}{{ '{}'.format(1) }}
{{ 'ab'|replace('a', 'c')|upper }}{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(messages[0].content) }}{{ bos_token }}
{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ messages|map(attribute='role')|join(', ') }}"""


@pytest.mark.parametrize(
    "template", ["{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", CHATML, EVERYTHING]
)
def test_an_ordinary_template_is_rendered_as_by_transformers(template):
    tokenizer = byte_tokenizer(template)
    turns = [{"role": "system", "content": "Be brief."}, *TURNS]
    for opened in (False, True):
        expected = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=opened)
        assert render_chat(tokenizer, turns, add_generation_prompt=opened) == expected != ""


def test_a_template_that_writes_the_date_is_shown_a_fixed_one_but_by_generate():
    tokenizer = byte_tokenizer("{{ strftime_now('%Y-%m-%d') }}")
    assert chat.writes_date(tokenizer) and not chat.writes_date(byte_tokenizer("{{ 1 }}"))
    assert render_chat(tokenizer, TURNS) == "2026-01-01" == str(chat.FIXED_DATE.date())
    today = render_chat(tokenizer, TURNS, today=True)
    assert today == datetime.now().strftime("%Y-%m-%d") or today[:4] == str(datetime.now().year)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 5_000_000}}, "puts a long text before every text"),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"String": "x"}, "content": "xx"}] * 40,
                }
            },
            "make a text 1.1e\\+12 times as long",
        ),
        (
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(x+x+)+y"},
                    "behavior": "Isolated",
                    "invert": False,
                }
            },
            "takes too long on short texts",
        ),
    ],
)
def test_a_tokenizer_that_would_hang_or_fill_the_memory_is_refused(tmp_path, parts, said, capfd):
    mw.open("tiny-llada").tokenizer.save_pretrained(save(tmp_path))
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))
    began = time.process_time()
    with pytest.raises(UserError, match=said):
        mw.open(tmp_path)
    assert time.process_time() - began < 10 and "panicked" not in capfd.readouterr().err


def test_the_patterns_of_known_tokenizers_are_let_through_in_milliseconds():
    cl100k = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+"
    )
    began = time.process_time()
    assert ends_in_time(cl100k) and ends_in_time(r"\p{N}{1,3}") and ends_in_time("[") and not ends_in_time("(x+x+)+y")
    assert time.process_time() - began < 6


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_device_or_a_fifo_in_the_place_of_a_file_is_one_line(tmp_path, name):
    save(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/dev/zero")
    for make in (lambda: None, lambda: os.mkfifo(tmp_path / name)):
        make()
        for read in (mw.open, lambda folder: describe_checkpoint(str(folder))):
            with pytest.raises(UserError, match=f"{name} is not a regular file"):
                read(tmp_path)
        (tmp_path / name).unlink()


def test_a_mask_that_is_also_the_end_or_not_the_tokenizers_is_one_line(tmp_path):
    tokenizer = mw.open("tiny-llada").tokenizer
    tokenizer.save_pretrained(save(tmp_path))
    size = json.loads((tmp_path / "config.json").read_text())["mask_token_id"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edit_config(tmp_path, mask_token_id=tokenizer.mask_token_id)
        mw.open(tmp_path)
    edit_config(tmp_path, mask_token_id=5)
    with pytest.warns(UserNotice, match="the mask of config.json is token 5, that of the tokenizer is 1"):
        mw.open(tmp_path)
    edit_config(tmp_path, mask_token_id=5, eos_token_id=5)
    with pytest.warns(UserNotice, match="token 5 is both the mask and the end of text"):
        mw.open(tmp_path)
    assert size != 5


def test_an_autoregressive_folder_is_called_that_before_its_missing_weights(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}')
    with pytest.raises(
        UserError, match=r"is not a masked language model \(GPT2LMHeadModel is autoregressive\), and it"
    ):
        mw.open(tmp_path)


def test_text_that_is_not_utf8_is_one_line(tmp_path):
    model = mw.open(save(tmp_path))
    with pytest.raises(UserError, match="prompt 2 is not UTF-8"):
        encode_prompts(model, ["fine", "\udcff"], None)
    command = [sys.executable, "-m", "maskwise.cli", "generate", str(tmp_path), "-"]
    done = subprocess.run(command, input=b"\xff\xfe\n", capture_output=True)
    assert done.returncode == 2 and b"is not UTF-8" in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "settings",
    [{"target_modules": "(.+)+x"}, {"target_modules": ".*" * 30 + "x"}, {"rank_pattern": {"(.|[a-z])+x": 4}}],
)
def test_a_pattern_that_would_take_years_is_refused(tmp_path, monkeypatch, settings):
    monkeypatch.setattr(peft_access, "MOST_SECONDS", 0.2)
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8} | settings))
    (folder / "adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(UserError, match=r"takes more than 0.2 s on the names of the weights"):
        mw.open("tiny-llada", adapter=folder)


@pytest.fixture
def asked_the_hub(monkeypatch):
    """What would be fetched; nothing is."""
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked = []

    def snapshot_download(name, local_files_only=False, **rest):
        if not local_files_only:
            asked.append(name)
        raise LocalEntryNotFoundError("not here")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_the_hub_is_asked_only_for_a_hub_name_and_it_is_said(tmp_path, monkeypatch, capsys, asked_the_hub):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("runs/mistyped", "../x/y", "a b/c", "a/b/c", "owner/", "~/model", "-x/y"):
        with pytest.raises(UserError):
            mw.open(name)
    assert asked_the_hub == [] and capsys.readouterr().err == ""
    with pytest.raises(UserError, match="could not be fetched"):
        mw.open("owner/model")
    assert asked_the_hub == ["owner/model"]
    assert capsys.readouterr().err == "maskwise: fetching owner/model from the Hugging Face hub\n"
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    with pytest.raises(UserError, match="could not be fetched"):
        mw.open("adapter")
    assert "someone/else, the base model that the adapter in adapter names, from" in capsys.readouterr().err


def test_code_from_another_repository_is_named(tmp_path):
    folder = save(tmp_path)
    edit_config(folder, auto_map={"AutoModel": "evil/repo--net.Net", "AutoConfig": "config.Config"})
    assert code_from_elsewhere(folder) == ["evil/repo"]


def test_links_in_the_folder_of_a_report_are_not_followed(tmp_path):
    (tmp_path / "precious").mkdir()
    run = write_run(tmp_path / "run")
    (run / "figures").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="is a link"):
        mw.read_run(run).report()
    assert list((tmp_path / "precious").iterdir()) == []


def test_the_card_of_a_stranger_is_read_in_linear_time(tmp_path):
    """A field repeated without an end took the square of the lines: minutes for a file of a megabyte."""
    fields = "license: mit\n" * 30_000
    began = time.process_time()
    (tmp_path / "README.md").write_text(f"---\n{fields}")
    assert licence_of(tmp_path) is None and body_of(tmp_path).startswith("---\nlicense")
    (tmp_path / "README.md").write_text(f"---\n{fields}---\nA model.")
    assert licence_of(tmp_path) == "mit" and body_of(tmp_path) == "A model."
    assert time.process_time() - began < 1
