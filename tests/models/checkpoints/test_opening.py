"""Opening checkpoints: what works, and what bad input gets."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModel,
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
)
from typer.testing import CliRunner

import maskwise as mw
from helpers.tiny import dream_net, edit_config, llada_moe_net, llada_net, llama_net, qwen_net, tiny_ar, tiny_dream
from maskwise.cli import app
from maskwise.models.checkpoints.adapters import merged
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import ZOO, locate_checkpoint
from maskwise.models.checkpoints.opening import opened_model
from maskwise.models.families.dream import DreamModel
from maskwise.support.errors import UserError
from maskwise.support.files import only_user_of

AUTO_MAP = {"AutoConfig": "evil.Config", "AutoModel": "evil.Net", "AutoModelForCausalLM": "evil.Net"}


def byte_tokenizer(**special):
    """Every byte one token, in the form of a tokenizer.json."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=raw, **special)


def test_an_opened_model_takes_no_unknown_option():
    model = tiny_ar()
    assert opened_model(model, device="cpu") is model
    with pytest.raises(TypeError, match=r"no option 'dvice' of mw\.open"):
        opened_model(model, dvice="cpu")


@pytest.fixture
def llada_folder(tmp_path):
    llada_net().save_pretrained(tmp_path / "llada")
    return tmp_path / "llada"


@pytest.mark.parametrize(
    "make, kind, shift, causal",
    [
        (llada_net, "llada", False, False),
        (dream_net, "dream", True, False),
        (llada_moe_net, "llada-moe", False, False),
        (qwen_net, "ar", True, True),
        (llama_net, "ar", True, True),
    ],
)
def test_opening_dispatches_on_the_architecture(make, kind, shift, causal, tmp_path):
    net = make(vocab=70)
    net.save_pretrained(tmp_path)
    model = mw.open(tmp_path)
    assert (model.kind, model.shift, model.causal, model.window) == (kind, shift, causal, 256)
    assert model.mask_id == (None if causal else 69)
    assert model.tokenizer is None
    assert not model.training
    dense = net(input_ids=torch.tensor([[1, 2, 3]])).logits[0, 1].detach()
    ours = model.predict([[1, 2, 3]], [[2 if shift else 1]])[0][0]
    torch.testing.assert_close(ours[:69], dense[:69])


def test_remote_code_is_never_run(llada_folder):
    edit_config(llada_folder, auto_map=AUTO_MAP)
    (llada_folder / "evil.py").write_text("raise SystemExit('remote code ran')")
    assert mw.open(llada_folder).kind == "llada"


def test_published_dream_settings_open_without_flash_attention(tmp_path):
    dream_net().save_pretrained(tmp_path)
    edit_config(tmp_path, attn_implementation="flash_attention_2", auto_map=AUTO_MAP, torch_dtype="bfloat16")
    assert mw.open(tmp_path).dtype == torch.float32  # "auto" on CPU
    assert mw.open(tmp_path, dtype="bfloat16").dtype == torch.bfloat16
    assert AutoModel.from_pretrained(tmp_path).config.model_type == "Dream"


def test_dreams_tokenizer_is_opened_as_qwen2s(tmp_path):
    dream_net(vocab=300, mask_token_id=None).save_pretrained(tmp_path)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    (tmp_path / "vocab.json").write_text(json.dumps({letter: n for n, letter in enumerate(alphabet)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    special = {"256": {"content": "<|mask|>", "special": True}}
    settings = {
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["evil.Tok", None]},
        "mask_token": "<|mask|>",
        "added_tokens_decoder": special,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    model = mw.open(tmp_path)
    assert isinstance(model.tokenizer, Qwen2Tokenizer)
    assert model.mask_id == 256  # the tokenizer's, since the configuration has none
    assert model.tokenizer.decode(model.tokenizer("Grüße!")["input_ids"]) == "Grüße!"


def test_the_mask_id_of_the_configuration_comes_before_the_tokenizers(tmp_path):
    llada_net(vocab=300, mask_token_id=290).save_pretrained(tmp_path)
    tokenizer = byte_tokenizer(mask_token="<m>")
    tokenizer.save_pretrained(tmp_path)
    assert mw.open(tmp_path).mask_id == 290
    edit_config(tmp_path, mask_token_id=None)
    assert mw.open(tmp_path).mask_id == tokenizer.mask_token_id


def test_no_mask_anywhere_is_said(tmp_path):
    llada_net(mask_token_id=None).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="mask_token_id"):
        mw.open(tmp_path)


def lora_on(net, targets, folder):
    torch.manual_seed(1)
    config = LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
    get_peft_model(net, config).save_pretrained(folder)


def test_an_adapter_is_put_on(llada_folder, tmp_path):
    base = mw.open(llada_folder)
    lora_on(llada_net(), base.lora_targets, tmp_path / "adapter")
    tuned = mw.open(llada_folder, adapter=tmp_path / "adapter")
    before, after = (model.predict([[1, 2, 3]], [[1]])[0][0, :63] for model in (base, tuned))
    assert (before - after).abs().max() > 1e-2
    plain = tuned.net.merge_and_unload()
    torch.testing.assert_close(
        plain(torch.tensor([[1, 2, 3]], device=tuned.device)).logits[0, 1, :63].cpu(), after, atol=1e-4, rtol=1e-4
    )


def test_an_adapter_that_cannot_be_merged_is_refused_in_one_line(llada_folder, tmp_path):
    """An aLoRA adapter acts on tokens after its invocation tokens: no sum of weights is the same."""
    base = mw.open(llada_folder)
    config = LoraConfig(r=2, target_modules=base.lora_targets, alora_invocation_tokens=[1], task_type="CAUSAL_LM")
    config.task_type = None  # as adapters are opened here
    adapted = get_peft_model(llada_net(), config)
    adapted.save_pretrained(tmp_path / "adapter")
    with pytest.raises(
        UserError, match=r"cannot be merged into the weights \(aLoRA does not support merging"
    ) as refused:
        merged(adapted)
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="is switched on by tokens"):  # opened, it would change nothing
        mw.open(llada_folder, adapter=tmp_path / "adapter")


def test_an_adapter_of_pefts_causal_type_opens_and_one_on_the_head_is_refused(tmp_path):
    dream_net().save_pretrained(tmp_path / "dream")
    base = mw.open(tmp_path / "dream")
    lora_on(dream_net(), base.lora_targets, tmp_path / "adapter")
    plain = mw.open(tmp_path / "dream", adapter=tmp_path / "adapter").predict([[1, 2, 3]], [[1]])[0]
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"task_type": "CAUSAL_LM"}))
    assert torch.equal(mw.open(tmp_path / "dream", adapter=tmp_path / "adapter").predict([[1, 2, 3]], [[1]])[0], plain)
    lora_on(dream_net(), ["q_proj", "lm_head"], tmp_path / "head")
    with pytest.raises(UserError, match="output head"):
        mw.open(tmp_path / "dream", adapter=tmp_path / "head")


def test_a_fingerprint_tells_weights_settings_adapters_and_tokenizers_apart(llada_folder, tmp_path):
    base = mw.open(llada_folder)
    prints = [fingerprint(base), fingerprint(mw.open(llada_folder))]
    assert prints[0] == prints[1]
    with torch.no_grad():
        base.head_weight[-1, -1] += 1
    prints.append(fingerprint(base))
    lora_on(llada_net(), base.lora_targets, tmp_path / "adapter")
    prints.append(fingerprint(mw.open(llada_folder, adapter=tmp_path / "adapter")))
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"lora_alpha": 99}))
    prints.append(fingerprint(mw.open(llada_folder, adapter=tmp_path / "adapter")))
    byte_tokenizer(eos_token="<e>").save_pretrained(llada_folder)
    prints.append(fingerprint(mw.open(llada_folder)))
    edit_config(llada_folder, rope_theta=77.0)
    prints.append(fingerprint(mw.open(llada_folder)))
    assert len(set(prints[1:])) == 6


def test_an_adapter_for_another_model_is_refused(llada_folder, tmp_path):
    wide = llada_net(width=64)
    lora_on(wide, mw.open(llada_folder).lora_targets, tmp_path / "wide")
    lora_on(dream_net(), r".*\.o_proj", tmp_path / "dream")
    lora_on(llada_net(layers=3), mw.open(llada_folder).lora_targets, tmp_path / "deep")
    for name in ("wide", "dream", "deep"):
        with pytest.raises(UserError, match="for another model") as caught:
            mw.open(llada_folder, adapter=tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no adapter_config"):
        mw.open(llada_folder, adapter=tmp_path / "nowhere")
    for config in ("{}", '{"peft_type": "FOO"}', '{"peft_type": "LORA", "unknown": 1, "r": "x"}', "[]", "{"):
        (tmp_path / "deep" / "adapter_config.json").write_text(config)
        with pytest.raises(UserError) as caught:
            mw.open(llada_folder, adapter=tmp_path / "deep")
        assert "\n" not in str(caught.value)


def test_adapters_that_only_the_prompt_sees_are_refused(tmp_path):
    qwen_net().save_pretrained(tmp_path / "base")
    get_peft_model(qwen_net(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)).save_pretrained(
        tmp_path / "prompt"
    )
    with pytest.raises(UserError, match="adds tokens to the prompt"):
        mw.open(tmp_path / "base", adapter=tmp_path / "prompt")


def test_an_adapter_is_not_converted(tmp_path):
    qwen_net().save_pretrained(tmp_path / "base")
    lora_on(qwen_net(), r".*\.o_proj", tmp_path / "adapter")
    config = tmp_path / "adapter" / "adapter_config.json"
    named = json.loads(config.read_text()) | {"base_model_name_or_path": str(tmp_path / "base")}
    config.write_text(json.dumps(named))
    with pytest.raises(UserError, match="merge it first"):
        mw.convert(tmp_path / "adapter", tmp_path / "out")


def drop_weight(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.transformer.ln_f.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def add_weight(folder):
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"model.extra": torch.ones(2)}, folder / "model.safetensors", {"format": "pt"})


def reshape_weight(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.transformer.ln_f.weight"] = torch.ones(7)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def truncate(folder):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def pickle_only(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def indexed(index):
    """Weights in shards, named by this index; none of them is there."""

    def damage(folder):
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_bytes(index)

    return damage


DAMAGE = [
    (lambda f: (f / "config.json").unlink(), "no config.json"),
    (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
    (lambda f: edit_config(f, architectures=["T5Model"]), "unknown architecture 'T5Model'"),
    (lambda f: edit_config(f, alibi=True), "alibi"),
    (lambda f: edit_config(f, d_model="x"), 'd_model is "x", not a whole number, 1 or more'),
    (lambda f: edit_config(f, n_heads=0), "n_heads is 0, not a whole number"),
    (lambda f: edit_config(f, n_layers=2.0), "n_layers is 2.0, not a whole number"),
    (lambda f: edit_config(f, rope_theta="a"), 'rope_theta is "a", not a positive number'),
    (lambda f: edit_config(f, rope_theta=1e-300), "rope_theta is 1e-300, not a number from 1 to 1e18"),
    (lambda f: edit_config(f, mask_token_id="z"), 'mask_token_id is "z", not a token\'s number'),
    (lambda f: edit_config(f, mask_token_id=[1, 2]), "not a token's number: correct it"),
    (lambda f: edit_config(f, dtype="float99"), 'dtype is "float99", not a type of torch'),
    (lambda f: edit_config(f, hidden_act=["silu"]), "not an activation that transformers knows"),
    (lambda f: edit_config(f, architectures="LLaDAModelLM"), "not a list of names"),
    (
        lambda f: edit_config(f, architectures=["LLaDA2MoeModelLM"]),
        "does not fit its config.json: that describes more than",
    ),
    (drop_weight, "missing weights model.transformer.ln_f.weight"),
    (add_weight, "unexpected weights model.extra"),
    (reshape_weight, "wrongly shaped weights model.transformer.ln_f.weight"),
    (truncate, "corrupt or cut short"),
    (lambda f: (f / "model.safetensors").write_bytes(b"hello"), "corrupt or cut short"),
    (pickle_only, "pickled weights"),
    (lambda f: (f / "model.safetensors").unlink(), "lacks model.safetensors"),
    (indexed(b'{"weight_map": {"a": "model-00001-of-00002.safetensors"}}'), "lacks model-00001-of-00002.safetensors"),
    (indexed(b"{"), "index.json is not valid JSON"),
    (indexed(b"\xff\xfe"), "index.json is not UTF-8 text"),
    (indexed(b"{}"), "not an index of weights"),
    (indexed(b'{"weight_map": ["a"]}'), "not an index of weights: download"),
    (indexed(b'{"weight_map": {"a": 1}}'), "not an index of weights: download it"),
    (lambda f: (f / "tokenizer.json").write_text('{"model":'), "tokenizer.json is corrupt"),
    (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json is corrupt"),
    (lambda f: (f / "tokenizer.json").write_text('{"model": 1, "added_tokens": []}'), "tokenizer of .* cannot be read"),
    (lambda f: (f / "special_tokens_map.json").write_text("{"), "special_tokens_map.json is corrupt"),
]


@pytest.mark.parametrize("damage, message", DAMAGE, ids=[message for _, message in DAMAGE])
def test_a_damaged_checkpoint_gets_one_line(damage, message, llada_folder, capfd):
    damage(llada_folder)
    capfd.readouterr()
    with pytest.raises(UserError, match=message) as caught:
        mw.open(llada_folder)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""  # transformers' table of what does not fit is kept back


def described(folder):
    """What `maskwise models FOLDER --json` prints, or its error line."""
    ended = CliRunner().invoke(app, ["models", str(folder), "--json"])
    return json.loads(ended.stdout)["models"][0] if ended.exit_code == 0 else (ended.exit_code, ended.stderr)


@pytest.mark.parametrize("damage, message", DAMAGE[:10], ids=[message for _, message in DAMAGE[:10]])
def test_a_folder_is_described_only_where_its_configuration_is_sound(damage, message, llada_folder):
    edit_config(llada_folder, auto_map=AUTO_MAP, model_type="made-up")  # transformers would ask to run its code
    damage(llada_folder)
    status, line = described(llada_folder)
    assert status == 2
    assert message in line
    assert line.count("\n") == 1


def test_a_folder_whose_weights_are_cut_short_is_not_said_to_work(llada_folder):
    weights = llada_folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    status, line = described(llada_folder)
    assert status == 2 and "is corrupt or cut short" in line and line.count("\n") == 1


def test_a_folder_is_described_as_it_is_opened(tmp_path):
    llada_net(vocab=300, mask_token_id=0).save_pretrained(tmp_path)
    byte_tokenizer(mask_token="<m>").save_pretrained(tmp_path)
    edit_config(tmp_path, model_type="made-up", auto_map=AUTO_MAP)  # the architecture decides
    for mask in (0, None):
        edit_config(tmp_path, mask_token_id=mask)
        model, entry = mw.open(tmp_path), described(tmp_path)
        assert entry["mask_id"] == model.mask_id == (256 if mask is None else 0)
        assert entry["kind"] == model.kind == "llada"
        assert entry["lora_targets"] == model.lora_targets


def test_llada_moe_opens_under_its_older_type_and_is_adapted_outside_its_experts(tmp_path):
    llada_moe_net().save_pretrained(tmp_path)
    edit_config(tmp_path, model_type="llada", auto_map=AUTO_MAP, shared_expert_intermediate_size=None)
    model, entry = mw.open(tmp_path), described(tmp_path)
    assert model.kind == entry["kind"] == "llada-moe" and not model.shift and not entry["shift"]
    named = {name for name, _ in model.core.named_modules() if re.fullmatch(model.lora_targets, name)}
    assert named == {f"model.layers.{n}.self_attn.{part}_proj" for n in range(2) for part in "qkvo"}


def test_causal_models_with_an_attention_of_their_own_are_refused(tmp_path):
    settings = BloomConfig(hidden_size=16, n_layer=1, n_head=2, vocab_size=32)
    BloomForCausalLM(settings).save_pretrained(tmp_path / "bloom")
    small = FalconConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=32)
    FalconForCausalLM(small).save_pretrained(tmp_path / "falcon")
    for name in ("bloom", "falcon"):
        with pytest.raises(UserError, match="does not fit the model interface"):
            mw.open(tmp_path / name)
        assert described(tmp_path / name)[0] == 2


def test_wrap_takes_the_mask_id_it_is_given(tmp_path):
    assert mw.wrap(llada_net(mask_token_id=None), mask_id=5).mask_id == 5
    assert mw.wrap(llada_net(), byte_tokenizer()).mask_id == 63  # LLaDA's tokenizer names none, its configuration does


def test_wrap_reads_a_causal_model_and_an_adapted_native_one_as_the_interface_does():
    ids, rows = [[4, 9, 2, 7]], [[1, 3]]
    wrapped, opened = mw.wrap(qwen_net(), causal=True), tiny_ar()
    torch.testing.assert_close(wrapped.predict(ids, rows)[0], opened.predict(ids, rows)[0], atol=1e-4, rtol=1e-4)
    net = dream_net()
    adapted = get_peft_model(net, LoraConfig(r=2, target_modules=["o_proj"], init_lora_weights=False))
    native = mw.wrap(adapted)
    assert (native.kind, native.shift) == ("dream", True) and native.net is adapted and native.core is net
    assert not torch.allclose(native.predict(ids, rows)[0], tiny_dream().predict(ids, rows)[0])


def test_rotary_positions_without_their_numbers_are_refused(tmp_path):
    dream_net().save_pretrained(tmp_path)
    edit_config(tmp_path, rope_parameters={"rope_type": "linear", "rope_theta": 1e4})
    with pytest.raises(UserError, match=r"rope_parameters cannot be read .*factor"):
        mw.open(tmp_path)


def test_a_folder_named_like_an_embedded_model_is_opened_and_said_once(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny-dream").mkdir()
    assert [locate_checkpoint("tiny-dream")[0] for _ in range(2)] == [Path("tiny-dream")] * 2
    assert capfd.readouterr().err == (
        "maskwise: tiny-dream is the folder of that name here, not the model that maskwise knows by it\n"
    )
    assert locate_checkpoint("tiny-llada")[0].is_relative_to(ZOO) and not capfd.readouterr().err


def test_an_unknown_name_says_what_is_known(tmp_path):
    with pytest.raises(UserError, match="no model 'lada'"):
        mw.open("lada")
    with pytest.raises(UserError, match="could not be fetched"):
        mw.open("nobody/nothing-here")
    file = tmp_path / "x.txt"
    file.write_text("")
    with pytest.raises(UserError, match="is a file"):
        mw.open(file)
    llada_net().save_pretrained(tmp_path / "m")
    with pytest.raises(UserError, match="unknown dtype"):
        mw.open(tmp_path / "m", dtype="int3")
    for device in ("abacus", "cuda:99"):
        with pytest.raises(UserError, match=f"no device '{device}'"):
            mw.open(tmp_path / "m", device=device)


@pytest.mark.parametrize("make", [qwen_net, llama_net])
def test_convert_makes_a_diffusion_checkpoint_of_the_same_weights(make, tmp_path):
    net = make(vocab=257)
    net.save_pretrained(tmp_path / "ar")
    byte_tokenizer(eos_token="<e>").save_pretrained(tmp_path / "ar")
    mw.convert(tmp_path / "ar", tmp_path / "diffusion")
    model = mw.open(tmp_path / "diffusion")
    assert (model.kind, model.shift, model.causal) == ("dream", True, False)
    assert model.mask_id == model.tokenizer.mask_token_id == model.vocab - 1
    # One token sees only itself, so bidirectional and causal attention agree there.
    causal = net(input_ids=torch.tensor([[7]])).logits[0, 0].detach()
    torch.testing.assert_close(model.predict([[7]], [[1]])[0][0, :257], causal)
    # And with two the first sees the second.
    a, b = (model.predict([[7, second]], [[1]])[0][0, :257] for second in (8, 9))
    assert (a - b).abs().max() > 1e-3


def test_convert_takes_an_unused_row_before_it_adds_one(tmp_path):
    net = qwen_net(vocab=300)
    net.save_pretrained(tmp_path / "ar")
    byte_tokenizer(eos_token="<e>").save_pretrained(tmp_path / "ar")
    model = mw.open(mw.convert(tmp_path / "ar", tmp_path / "out"))
    assert model.vocab == 300
    assert model.mask_id == model.tokenizer.mask_token_id == len(model.tokenizer) - 1 < 299
    expected = net.get_input_embeddings().weight[: model.mask_id].mean(0)
    torch.testing.assert_close(model.embed(torch.tensor([model.mask_id], device=model.device))[0].cpu(), expected)


def test_convert_makes_a_row_for_a_mask_token_without_one(tmp_path):
    net = qwen_net(vocab=257)
    net.save_pretrained(tmp_path / "ar")
    tokenizer = byte_tokenizer(eos_token="<e>")
    tokenizer.add_special_tokens({"mask_token": "<|mine|>"})
    assert tokenizer.mask_token_id == 257
    tokenizer.save_pretrained(tmp_path / "ar")
    model = mw.open(mw.convert(tmp_path / "ar", tmp_path / "out"))
    assert model.mask_id == 257 == model.vocab - 1
    expected = net.get_input_embeddings().weight.mean(0)
    torch.testing.assert_close(model.embed(torch.tensor([257], device=model.device))[0].cpu(), expected)


def test_convert_overwrites_nothing(tmp_path):
    qwen_net().save_pretrained(tmp_path / "ar")
    before = (tmp_path / "ar" / "config.json").read_bytes()
    for out in (tmp_path / "ar", tmp_path / "ar" / "config.json"):
        with pytest.raises(UserError, match="is not empty: choose another"):
            mw.convert(tmp_path / "ar", out)
    assert (tmp_path / "ar" / "config.json").read_bytes() == before


def test_convert_writes_all_or_nothing_and_one_at_a_time(tmp_path, monkeypatch):
    folder = tmp_path / "ar"
    qwen_net().save_pretrained(folder)
    left = tmp_path / "out.partial"
    left.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):  # of a killed one
        (left / name).write_bytes(b"half")
    with only_user_of(left), pytest.raises(UserError, match="in use by another process"):
        mw.convert(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert mw.open(mw.convert(folder, tmp_path / "out")).kind == "dream" and not left.exists()
    assert not (tmp_path / "out" / "tokenizer.json").exists()

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(DreamModel, "save_pretrained", killed)
    with pytest.raises(KeyboardInterrupt):
        mw.convert(folder, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_convert_keeps_scaled_rotary_positions(tmp_path):
    rope = {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    net = llama_net(rope_parameters=rope)
    net.save_pretrained(tmp_path / "ar")
    model = mw.open(mw.convert(tmp_path / "ar", tmp_path / "out"))
    frequencies, scaling = model.net.config.inverse_frequencies()
    torch.testing.assert_close(frequencies, net.model.rotary_emb.inv_freq)
    assert scaling == net.model.rotary_emb.attention_scaling


def test_convert_refuses_other_families(llada_folder, tmp_path):
    with pytest.raises(UserError, match="give a Llama or Qwen2"):
        mw.convert(llada_folder, tmp_path / "out")
    llama_net(attention_bias=True).save_pretrained(tmp_path / "biased")
    with pytest.raises(UserError, match="attention_bias"):
        mw.convert(tmp_path / "biased", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    shutil.rmtree(tmp_path / "biased")


def test_a_tokenizer_file_is_taken_as_it_stands_whatever_the_family(tmp_path):
    """The Auto classes would split a Qwen2 folder's text in Qwen2's way: digits one by one, words with their space."""
    qwen_net(vocab=300).save_pretrained(tmp_path)
    raw = Tokenizer(models.BPE(vocab={"1": 0, "2": 1, "12": 2}, merges=[("1", "2")]))
    PreTrainedTokenizerFast(tokenizer_object=raw).save_pretrained(tmp_path)
    assert mw.open(tmp_path).tokenizer("1212")["input_ids"] == [2, 2]
