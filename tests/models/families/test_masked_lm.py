"""Masked language models of transformers: logits equal their own, and the special tokens stay out of sight."""

import json

import pytest
import torch
import torch.nn.functional as F

import maskwise as mw
from helpers.masked_lms import framing_tokenizer, masked_lm_net, save_masked_lm
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.catalog import describe_checkpoint
from maskwise.support.errors import UserError

ARCHITECTURES = ("Bert", "Roberta", "ModernBert", "Albert", "Electra", "Esm")
TEXT = "The quick brown fox jumps over"


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request, tmp_path_factory):
    return save_masked_lm(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def model(folder):
    return mw.open(folder, device="cpu")


def own_logits(model, ids):
    """Of transformers' class, for the sequence alone between [CLS] and [SEP]; [n, V]."""
    start, end = framing_tokenizer()("")["input_ids"]
    logits = model.net(input_ids=torch.tensor([[start, *ids, end]])).logits[0, 1:-1].detach().clone()
    logits[:, model.mask_id] = float("-inf")
    return logits


def masked_ids(model, masks):
    return model.tokenizer(TEXT)["input_ids"] + [model.mask_id] * masks


def test_logits_in_a_batch_equal_those_of_transformers_for_each_sequence_alone(model):
    sequences = [masked_ids(model, masks) for masks in (1, 30, 7)]
    rows = [list(range(len(sequence))) for sequence in sequences]
    for ours, sequence in zip(model.predict(sequences, rows), sequences, strict=True):
        torch.testing.assert_close(ours, own_logits(model, sequence), atol=2e-5, rtol=1e-4)


def test_a_sequence_with_its_special_tokens_is_taken_as_it_is(model):
    ids, (start, end) = masked_ids(model, 3), framing_tokenizer()("")["input_ids"]
    (bare,) = model.predict([ids], [list(range(len(ids)))])
    (framed,) = model.predict([[start, *ids, end]], [list(range(1, len(ids) + 1))])
    torch.testing.assert_close(bare, framed, atol=2e-5, rtol=1e-4)


def test_the_longest_sequence_fits_and_one_more_token_is_refused(model):
    model.predict([[5] * model.window], [[0]])
    with pytest.raises(UserError, match="context length"):
        model.predict([[5] * (model.window + 1)], [[0]])


def test_it_is_listed_without_reading_weights(folder, model):
    entry = describe_checkpoint(str(folder))
    assert (entry.kind, entry.window, entry.mask_id) == ("masked-lm", model.window, model.mask_id)
    assert entry.parameters == model.parameter_count


def test_the_saved_tokenizer_writes_its_special_tokens_again(model, tmp_path):
    model.save_pretrained(tmp_path / "saved")
    stored = json.loads((tmp_path / "saved" / "tokenizer.json").read_text())
    assert stored["post_processor"]["type"] == "TemplateProcessing"
    again = mw.open(tmp_path / "saved", device="cpu")
    ids = masked_ids(model, 2)
    torch.testing.assert_close(again.predict([ids], [[len(ids) - 1]])[0], model.predict([ids], [[len(ids) - 1]])[0])
    assert len(model.tokenizer(TEXT)["input_ids"]) == len(framing_tokenizer()(TEXT)["input_ids"]) - 2


def test_a_loss_sees_the_bias_of_the_head(model):
    ids = masked_ids(model, 4)
    batch, rows = Batch.pack([ids]), torch.arange(len(ids) - 4, len(ids))
    targets = torch.tensor([7, 8, 9, 10])

    def loss(hidden, weight):
        logits = hidden.float() @ weight.float().t()
        return F.cross_entropy(logits.index_fill(1, torch.tensor([model.mask_id]), float("-inf")), targets)

    expected = F.cross_entropy(own_logits(model, ids)[rows], targets)
    torch.testing.assert_close(model(batch, rows, loss), expected, atol=1e-4, rtol=1e-4)


def test_embeddings_in_place_of_ids_give_the_same_hidden_states_or_are_refused(model):
    ids = torch.tensor(masked_ids(model, 3))
    batch = Batch.pack([ids])
    given = Batch(ids, model.embed(ids), batch.offsets, batch.starts, batch.longest)
    if getattr(model.core.config, "token_dropout", False):  # ESM rescales embeddings by the share of masks in the ids
        with pytest.raises(UserError, match="share of masks"):
            model.hidden(given)
    else:
        torch.testing.assert_close(model.hidden(given), model.hidden(batch), atol=1e-5, rtol=1e-4)


def test_wrap_finds_the_head_and_leaves_the_tokenizer_of_the_caller_as_it_was():
    net, tokenizer = masked_lm_net("Bert"), framing_tokenizer()
    before = tokenizer(TEXT)["input_ids"]
    model = mw.wrap(net, tokenizer)
    assert model.kind == "masked-lm" and tokenizer(TEXT)["input_ids"] == before
    assert model.tokenizer(TEXT)["input_ids"] == before[1:-1]


def test_positions_of_a_masked_language_model_cannot_be_moved():
    model = mw.wrap(masked_lm_net("Bert"), framing_tokenizer())
    batch = Batch.spans([[5, 6]], [3])
    with pytest.raises(UserError, match="cannot be moved"):
        model.hidden(batch)
