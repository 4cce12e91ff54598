"""`maskwise verify`, `models` and `convert` on the command line; the "original code" here is the test's own."""

import json
from contextlib import contextmanager

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from typer.testing import CliRunner

from helpers.checkpoints import CHAT, MASK, byte_tokenizer
from helpers.outputs import departures
from helpers.tiny import dream_net, fast_dllm_net, illada_net, llada_net, qwen_net, sdar_net
from maskwise.cli import app
from maskwise.models.checkpoints.original_code import original_net
from maskwise.models.checkpoints.verify import verify
from maskwise.support.errors import UserError

# Dream has bias on q, k, v only; a causal-free Qwen2 of transformers is an independent implementation of it.
ORIGINAL = """
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM


class Config(Qwen2Config):
    model_type = "Dream"


class Net(Qwen2ForCausalLM):
    config_class = Config

    def forward(self, input_ids):
        length = input_ids.shape[1]
        everything = torch.zeros(1, 1, length, length, dtype=self.dtype, device=input_ids.device)
        return super().forward(input_ids, attention_mask=everything)
"""


# transformers' Qwen2 and Qwen3 over blocks: Fast-dLLM v2's code makes its mask of a block size, SDAR's is given one.
FAST_DLLM = """
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


class Config(Qwen2Config):
    model_type = "Fast_dLLM_Qwen"


class Net(Qwen2ForCausalLM):
    config_class = Config

    def forward(self, input_ids, block_size=32):
        block = torch.arange(input_ids.shape[1]) // block_size
        return super().forward(input_ids, attention_mask=(block[:, None] >= block)[None, None])
"""
SDAR = """
from transformers import Qwen3Config, Qwen3ForCausalLM


class Config(Qwen3Config):
    model_type = "sdar"


class Net(Qwen3ForCausalLM):
    config_class = Config
"""


# What published code expects of transformers 4: configuration fields, frequencies by name, a list of tied names.
VERSION_4 = """
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, Qwen2Config, Qwen2Model
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


class Config(PreTrainedConfig):
    model_type = "Dream"


class Net(PreTrainedModel):
    config_class = Config
    _tied_weights_keys = ["lm_head.weight"]

    def __init__(self, config):
        super().__init__(config)
        self.model = Qwen2Model(Qwen2Config(**config.to_dict()))
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.frequencies = ROPE_INIT_FUNCTIONS["default"]
        # the last line

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids):
        frequencies, factor = self.frequencies(self.config, None)
        assert factor == 1 and torch.allclose(frequencies, self.model.rotary_emb.inv_freq)
        assert self.config.use_cache is False and self.config.use_return_dict is True
        length = input_ids.shape[1]
        everything = torch.zeros(1, 1, length, length, dtype=self.dtype, device=input_ids.device)
        hidden = self.model(input_ids, attention_mask=everything).last_hidden_state
        return type("Output", (), {"logits": self.lm_head(hidden)})
"""
NO_POST_INIT = (
    VERSION_4
    + """
    def tie_weights(self):
        pass
"""
)
CODES_OF_4 = [VERSION_4.replace("# the last line", "self.post_init()"), NO_POST_INIT]


TOKENIZER = """
from transformers import PreTrainedTokenizerFast


class Tokenizer(PreTrainedTokenizerFast):
    pass
"""
ANOTHER_ID = """
    def __call__(self, text):
        return {"input_ids": [*super().__call__(text)["input_ids"], 0]}
"""
ANOTHER_TEMPLATE = """
    def get_chat_template(self, *named):
        return super().get_chat_template(*named) + "!"
"""
OWN_TEMPLATE = """
    @classmethod
    def from_pretrained(cls, folder):
        found = super().from_pretrained(folder)
        found.chat_template = "{{ messages[0]['content'] }}"
        return found
"""


@pytest.fixture
def folder_with_code(tmp_path):
    return with_code(dream_net(rope_theta=1e4), ORIGINAL, tmp_path / "model")


def with_code(net, code, folder):
    """The net in published form, with "original" code next to it."""
    net.save_pretrained(folder)
    (folder / "original.py").write_text(code)
    with fields_of(folder / "config.json") as settings:
        settings["auto_map"] = {"AutoConfig": "original.Config", "AutoModel": "original.Net"}
    return folder


@contextmanager
def fields_of(file):
    """The fields of a file, to be changed."""
    fields = json.loads(file.read_text())
    yield fields
    file.write_text(json.dumps(fields))


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_verify_finds_agreement(folder_with_code):
    result = run("verify", folder_with_code, "--json")
    assert result.exit_code == 0, result.output
    assert "running the Python code" in result.stderr
    found = json.loads(result.stdout)
    assert departures(found, "verify") == []
    assert found["positions"] == 48
    assert found["largest_logit_difference"] < 1e-4
    assert found["greedy_tokens_that_differ"] == 0


@pytest.mark.parametrize("code", CODES_OF_4)
@pytest.mark.parametrize("tied", [False, True])
def test_verify_runs_code_written_for_transformers_4(code, tied, tmp_path, monkeypatch):
    monkeypatch.delattr(PreTrainedConfig, "use_return_dict", raising=False)  # deprecated: a later version has it not
    folder = with_code(dream_net(rope_theta=1e4, tie_word_embeddings=tied), code, tmp_path / "model")
    result = run("verify", folder, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["agrees"] and found["largest_logit_difference"] < 1e-4
    assert "default" not in ROPE_INIT_FUNCTIONS


@pytest.mark.parametrize("code", CODES_OF_4)
def test_code_for_transformers_4_ties_the_head_where_the_configuration_does_not_say(code, tmp_path):
    net = illada_net(rope_theta=1e4, qkv_bias=True)  # tied by default in our class
    folder = with_code(net, code.replace('"Dream"', '"illada"'), tmp_path / "model")
    with fields_of(folder / "config.json") as settings:
        assert settings.pop("tie_word_embeddings")
    assert json.loads(run("verify", folder, "--json").stdout)["agrees"]


@pytest.mark.parametrize("code", CODES_OF_4)
def test_code_for_transformers_4_runs_in_the_precision_asked_for(code, tmp_path):
    folder = with_code(dream_net(rope_theta=1e4), code, tmp_path / "model")
    net = original_net(folder, "original.Net", "original.Config", torch.bfloat16, torch.device("cpu"), "eager")
    assert {weight.dtype for weight in net.parameters()} == {torch.bfloat16}
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("lost", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_weight_that_code_without_post_init_would_draw_at_random_is_refused(lost, tmp_path):
    folder = with_code(dream_net(rope_theta=1e4), NO_POST_INIT, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights[lost]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(UserError, match=f"lack {lost}, a weight of the class in its code"):
        original_net(folder, "original.Net", "original.Config", torch.float32, torch.device("cpu"), "eager")


def test_verify_prints_whether_the_two_agree(folder_with_code):
    assert run("verify", folder_with_code).stdout.splitlines()[-1].startswith("pass: ")
    code = (folder_with_code / "original.py").read_text()
    (folder_with_code / "original.py").write_text(code.replace("forward(input_ids, a", "forward(input_ids.flip(1), a"))
    failed = run("verify", folder_with_code)
    assert failed.stdout.splitlines()[-1].startswith("FAIL: ")
    assert failed.exit_code == 0


@pytest.mark.parametrize(
    ("dtype", "factor", "agrees"),
    [("float32", 1.0005, True), ("float32", 1.002, False), ("float16", 1.02, True), ("float16", 1.04, False)],
)
def test_a_pass_allows_a_thousandth_of_the_largest_logit_and_three_hundredths_in_half_precision(
    dtype, factor, agrees, folder_with_code
):
    scaled = f"""
        output = super().forward(input_ids, attention_mask=everything)
        output.logits *= {factor}
        return output
"""
    (folder_with_code / "original.py").write_text(ORIGINAL[: ORIGINAL.index("        return super")] + scaled)
    result = run("verify", folder_with_code, "--dtype", dtype, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["agrees"] is agrees


def test_an_adapter_is_not_compared_with_code_that_runs_without_it(folder_with_code, tmp_path):
    adapted = get_peft_model(dream_net(rope_theta=1e4), LoraConfig(r=2, target_modules=["q_proj"]))
    adapted.save_pretrained(tmp_path / "lora")
    with pytest.raises(UserError, match=r"merge it first \(maskwise export\), then verify that"):
        verify(f"{folder_with_code}+{tmp_path / 'lora'}")


@pytest.mark.parametrize("odd", ["float('nan')", "float('inf')"])
def test_logits_of_the_original_that_are_not_finite_are_no_pass(odd, folder_with_code):
    """On the second of the three texts alone, where the largest of three numbers can hide them."""
    code = f"""
        output = super().forward(input_ids, attention_mask=everything)
        Net.calls = getattr(Net, "calls", 0) + 1
        if Net.calls == 2:
            output.logits[0, 3, 5] = {odd}
        return output
"""
    (folder_with_code / "original.py").write_text(ORIGINAL[: ORIGINAL.index("        return super")] + code)
    result = run("verify", folder_with_code, "--json")
    assert result.exit_code == 2 and "gives logits that are NaN or infinite" in result.stderr


def folder_with_tokenizers(code, folder, chat):
    """Code with a tokenizer of its own next to a tokenizer.json."""
    folder = with_code(dream_net(vocab=MASK + 1, rope_theta=1e4), ORIGINAL + TOKENIZER + code, folder)
    byte_tokenizer(chat).save_pretrained(folder)
    with fields_of(folder / "tokenizer_config.json") as settings:
        settings["auto_map"] = {"AutoTokenizer": [None, "original.Tokenizer"]}
    return folder


def test_without_a_configuration_of_the_tokenizer_no_text_is_compared(tmp_path):
    folder = folder_with_tokenizers("", tmp_path / "model", CHAT)
    (folder / "tokenizer_config.json").unlink()
    found = json.loads(run("verify", folder, "--json").stdout)
    assert (found["agrees"], found["texts"], found["chat_prompts_agree"]) == (True, 0, None)


@pytest.mark.parametrize(
    ("change", "other_ids", "same_chat"),
    [("", 0, True), (ANOTHER_ID, 3, True), (ANOTHER_TEMPLATE, 0, False), (OWN_TEMPLATE, 0, False)],
    ids=["same", "id", "template", "own template"],
)
def test_a_pass_needs_the_token_ids_and_the_chat_prompt_of_the_original_tokenizer(
    change, other_ids, same_chat, tmp_path
):
    folder = folder_with_tokenizers(change, tmp_path / "model", None if change == OWN_TEMPLATE else CHAT)
    found = json.loads(run("verify", folder, "--json").stdout)
    assert found["largest_logit_difference"] < 1e-4
    assert (found["texts_with_other_ids"], found["chat_prompts_agree"]) == (other_ids, same_chat)
    assert found["agrees"] is (not change)


CAUSAL = """
    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "code", "other"),
    [(fast_dllm_net, FAST_DLLM, FAST_DLLM.replace(">=", "==")), (sdar_net, SDAR, SDAR + CAUSAL)],
)
def test_verify_compares_block_models_over_more_than_two_blocks(make, code, other, tmp_path):
    folder = with_code(make(), code, tmp_path / "model")
    found = json.loads(run("verify", folder, "--json").stdout)
    assert found["largest_logit_difference"] < 1e-4 and found["greedy_tokens_that_differ"] == 0
    assert found["positions"] > 3 * 2 * 4
    (folder / "original.py").write_text(other)
    assert json.loads(run("verify", folder, "--json").stdout)["largest_logit_difference"] > 1e-2


def test_verify_finds_a_difference(folder_with_code):
    code = (folder_with_code / "original.py").read_text()
    (folder_with_code / "original.py").write_text(
        code.replace("torch.zeros(", "torch.eye(length, device=input_ids.device)[None, None] + torch.zeros(")
    )
    found = json.loads(run("verify", folder_with_code, "--json").stdout)
    assert found["largest_logit_difference"] > 1e-2 and not found["agrees"]


def test_verify_says_when_there_is_no_code_or_it_breaks(folder_with_code, tmp_path):
    (folder_with_code / "original.py").write_text("import no_such_package_of_theirs")
    broken = run("verify", folder_with_code)
    assert broken.exit_code == 2
    assert "does not run here" in broken.stderr.splitlines()[-1]
    llada_net().save_pretrained(tmp_path / "plain")
    plain = run("verify", tmp_path / "plain")
    assert plain.exit_code == 2
    assert "plain has no original code to compare with" in plain.stderr and "diagnose and the other" in plain.stderr


def test_verify_refuses_by_the_configuration_before_a_weight_is_read(tmp_path):
    folder = with_code(qwen_net(), ORIGINAL, tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"")
    refused = run("verify", folder)
    assert refused.exit_code == 2
    (line,) = refused.stderr.splitlines()
    assert "autoregressive" in line


def test_models_lists_published_names_and_folders(tmp_path):
    listed = json.loads(run("models", "--json").stdout)["models"]
    by_name = {entry["name"]: entry for entry in listed}
    assert by_name["GSAI-ML/LLaDA-8B-Instruct"]["parameters"] == 8015581184
    assert by_name["Dream-org/Dream-v0-Base-7B"]["mask_id"] == 151666
    assert set(listed[0]) == {"name", "kind", "parameters", "window", "mask_id", "shift", "causal", "lora_targets"}
    net = qwen_net()
    net.save_pretrained(tmp_path)
    entry = json.loads(run("models", tmp_path, "--json").stdout)["models"][0]
    assert entry["parameters"] == sum(p.numel() for p in net.parameters())
    assert entry["causal"] and entry["mask_id"] is None
    table = run("models")
    assert table.exit_code == 0, table.output
    rows = {line.split()[0]: line.split() for line in table.stdout.splitlines()}
    assert rows["GSAI-ML/LLaDA-8B-Base"][1:] == ["llada", "8.0", "B", "4096", "126336", "no"]
    assert rows["Qwen/Qwen2.5-7B"][1:] == ["ar", "7.6", "B", "131072", "-", "yes"]


def test_unknown_model_is_one_line_and_status_two():
    result = run("models", "nosuch")
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1


def test_convert_command(tmp_path):
    qwen_net().save_pretrained(tmp_path / "ar")
    result = run("convert", tmp_path / "ar", "--out", tmp_path / "out", "--json")
    assert json.loads(result.stdout)["model"]["mask_id"] == 64
    assert [file.name for file in (tmp_path / "out").iterdir() if file.suffix != ".json"] == ["model.safetensors"]
