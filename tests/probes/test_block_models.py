"""Probes on block diffusion models: what an answer sees, what is asked of it, and what is said of the rest."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

import maskwise as mw
from helpers.known import SMALL, diagnosed, shipped_tokenizer
from helpers.tiny import edit_config, tiny_fast_dllm, tiny_llada, tiny_llada2, tiny_sdar
from maskwise.cli import app
from maskwise.models.attention.ragged import Reach
from maskwise.models.batch import Batch
from maskwise.probes import PROBES
from maskwise.probes.blocks import most_masks, visible_counts
from maskwise.probes.library import filler
from maskwise.probes.setup import Asker, Setup
from maskwise.runs.asked import asked_ids
from maskwise.runs.diagnose import diagnose
from maskwise.runs.run import read_run
from maskwise.runs.settings import DEFAULT, fit_to_model
from maskwise.support.errors import UserError
from maskwise.tasks.words import load_words

MODELS = [tiny_sdar, tiny_fast_dllm, tiny_llada2]  # blocks of 4, of 8 and shifted, of 8
FEW = replace(SMALL, tasks=SMALL.tasks[:1], questions=2, passages=2).changed("mask-count", mask_counts=(1, 2, 5, 20))


def block_model(make):
    return make(tokenizer=shipped_tokenizer(), vocab=2056, window=2048)


@torch.no_grad()
def left_padded(model, ids, start, row):
    """The dense reference: the prediction of `row` in an ordinary padded call, `start` unseen tokens before the ids."""
    padded = torch.tensor([[0] * start + list(ids)])
    seen = torch.tensor([[0] * start + [1] * len(ids)])
    logits = model.net(padded, attention_mask=seen).logits[0, start + row - int(model.shift)].float()
    logits[model.mask_id] = -torch.inf
    return logits


@pytest.mark.parametrize(
    ("reach", "ends"), [(Reach(), [6] * 6), (Reach(1), [1, 2, 3, 4, 5, 6]), (Reach(4), [4, 4, 4, 4, 6, 6])]
)
def test_what_a_query_sees_is_everything_the_past_or_its_block_and_those_before(reach, ends):
    assert [reach.end(position, 6) for position in range(6)] == ends


@pytest.mark.parametrize("make", [*MODELS, tiny_llada])
@torch.no_grad()
def test_a_prediction_changes_with_the_last_token_it_sees_and_with_none_after(make):
    model = make()
    clean = torch.randint(0, 60, (21,), generator=torch.Generator().manual_seed(3)).tolist()
    for row in (5, 8, 9, 15):
        first = row // 4 * 4
        ids = [*clean[:first], model.mask_id, *clean[first + 1 :]]  # as where answers are asked: in a block with masks
        end = model.seen_by(row, len(ids))
        last, after = ids.copy(), ids[:end] + [7] * (len(ids) - end)
        last[end - 1] += 1
        whole, other, same = (found[0] for found in model.predict([ids, last, after], [[row]] * 3))
        assert (whole - other).nan_to_num().abs().max() > 1e-3
        torch.testing.assert_close(whole, same, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("make", MODELS)
@torch.no_grad()
def test_a_prompt_moved_on_the_grid_is_padded_on_the_left_by_tokens_nobody_sees(make):
    model = make()
    prompts = [
        torch.randint(0, 60, (length,), generator=torch.Generator().manual_seed(length)).tolist()
        for length in (13, 21, 21)
    ]
    starts = [0, 3, 6]
    batch = Batch.spans(prompts, starts)
    rows = model.flat_rows(batch, [[start + 9] for start in starts])
    logits = model.head(model.hidden(batch)[rows])
    for found, ids, start in zip(logits, prompts, starts, strict=True):
        torch.testing.assert_close(found, left_padded(model, ids, start, 9), atol=5e-5, rtol=1e-4)


def assert_dense(model, run, row):
    """The answer of a row of a table is that of a padded call with its prompt moved as the row says."""
    ids = asked_ids(run.manifest, row, model.tokenizer)
    place = ids.index(model.mask_id)
    p = left_padded(model, ids, (int(row["place_in_block"]) - place) % model.block, place).softmax(-1)
    assert row["predicted"] == model.tokenizer.decode([int(p.argmax())])
    assert row["confidence"] == pytest.approx(float(p.max()), abs=1e-4)


@pytest.mark.parametrize("make", MODELS)
def test_answers_are_the_dense_ones_at_the_start_of_a_block_with_every_mask_visible(make, tmp_path):
    model = block_model(make)
    run = diagnosed(model, replace(FEW, probes=("location", "mask-count")), tmp_path)
    most = most_masks(model.block, model.shift)
    asked = [k for k in (1, 2, 5) if k <= most] + [most]
    assert set(run.table("mask-count").masks) == set(asked)
    assert run.manifest.not_visible == {"mask-count": [k for k in (5, 20) if k > most]}
    assert run.manifest.model.block == model.block
    for table in run.tables.values():
        assert (table.masks_visible == table.masks_seen).all() and set(table.place_in_block) == {int(model.shift)}
        for row in table.iloc[:: len(table) // 2].to_dict("records"):
            assert_dense(model, run, row)


def test_the_curve_ends_at_the_largest_number_that_is_visible(tmp_path):
    run = diagnosed(block_model(tiny_llada2), replace(FEW, probes=("mask-count",)), tmp_path)
    (figure, *_) = PROBES[[probe.name for probe in PROBES].index("mask-count")].figures
    assert sorted(set(figure.data(run.table("mask-count"), {}).masks)) == [1, 2, 5, 8]
    assert run.manifest.not_visible == {"mask-count": [20]}
    assert run.measured["mask-count"][0].name == "change of accuracy with 8 masks instead of 2"


def test_other_tokens_in_the_block_leave_room_for_fewer():
    setup = Setup(block_model(tiny_llada2), Asker(None, 0, 0, False), FEW, load_words(), "", {}, [])
    for number, (other_tokens, most) in enumerate(((0, 8), (1, 7), (3, 5)), 1):
        assert visible_counts(setup, "filler", [2, 20], other_tokens) == (2, most)
        assert len(setup.notes) == number


def test_a_block_of_two_has_no_room_for_full_stops():
    model = SimpleNamespace(block=2, shift=True, causal=False)
    setup = Setup(model, Asker(shipped_tokenizer(), 0, 0, False), FEW, load_words(), "", {}, [])  # type: ignore[arg-type]
    (asked,) = filler.ask(setup)
    assert {one["fillers"] for one in asked.conditions} == {0}


@pytest.mark.parametrize("make", [tiny_fast_dllm, tiny_llada2])
def test_the_answer_stands_where_block_offset_says_and_sees_the_masks_of_its_block(make, tmp_path):
    model = block_model(make)
    run = diagnosed(model, replace(FEW, probes=("block-offset",)), tmp_path)
    table = run.table("block-offset")
    assert set(map(tuple, table[["after", "offset", "masks_seen"]].to_numpy())) == {
        ("2 masks", 0, 2),
        ("2 masks", 4, 2),
        ("to the end", 0, 8),
        ("to the end", 4, 4),
        ("to the end", 7, 1),
    }
    for row in table.to_dict("records"):
        hidden = model.shift and row["offset"] == 0  # read from the last token of the block before
        assert row["place_in_block"] == row["offset"]
        assert row["masks_visible"] == (0 if hidden else row["masks_seen"])
        assert_dense(model, run, row)


def test_models_without_blocks_are_not_asked_about_places_in_them(tmp_path):
    model = tiny_llada(tokenizer=shipped_tokenizer(), vocab=2056, window=2048)
    run = diagnosed(model, replace(FEW, probes=("mask-count", "block-offset")), tmp_path)
    assert run.manifest.settings.probes == ["mask-count"] and len(run.manifest.notes) == 1
    assert fit_to_model(DEFAULT, causal=False)[1] == []  # named by the preset alone
    with pytest.raises(UserError, match="block-offset is for block diffusion models"):
        diagnose(model, replace(FEW, probes=("block-offset",)), tmp_path / "alone")


@pytest.mark.slow
def test_every_probe_is_asked_or_says_why_not(tmp_path):
    """Every mask and filler that is asked is visible; gradients and attention go to nothing after the block."""
    names = tuple(probe.name for probe in PROBES)
    settings = replace(FEW, probes=names, questions=1, passages=1)
    settings = settings.changed("recall", lists_per_point=1, distances=("near",)).changed("points", clouds=1)
    run = diagnosed(block_model(tiny_fast_dllm), settings, tmp_path)
    output = " ".join(run.manifest.notes)
    asked = {"location", "recall", "mask-count", "filler", "contrast", "natural-text", "attribution", "points"}
    assert asked <= run.tables.keys() == run.measured.keys()
    assert {name for name in names if name not in run.tables and f"{name} was not run" not in output} == set()
    for name, table in run.tables.items():
        own = table[table.how == "one pass"] if name == "own-task" else table  # what is decoded sees its whole canvas
        if name != "block-offset":
            assert (own.masks_visible == own.masks_seen).all() and own.masks_seen.max() <= 7
            assert set(own.place_in_block) == {1}
        if "question" in table:
            assert set(table.question.dropna()) == {"right"}


def test_a_run_of_nothing_but_probes_that_do_not_apply_is_one_line(tmp_path):
    with pytest.raises(UserError, match="steps does not apply, a block diffusion model decodes block by block"):
        diagnose(block_model(tiny_sdar), replace(FEW, probes=("steps",)), tmp_path)


def test_it_is_read_from_config_json_alone(tmp_path):
    tiny_sdar().core.config.save_pretrained(tmp_path)  # no weights, so it cannot be opened
    edit_config(tmp_path, architectures=["SDARForCausalLM"])
    with pytest.raises(UserError, match="mechanism does not apply, a block diffusion model decodes block by block"):
        mw.diagnose(tmp_path, "mechanism")
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path), "--probes", "mechanism"])
    assert done.exit_code == 2 and "mechanism does not apply" in done.stderr
    with pytest.raises(UserError, match=r"lacks model.safetensors"):
        mw.diagnose(tmp_path, "mask-count")


@pytest.mark.parametrize(
    ("where", "name", "value"), [("model", "block", 0), ("", "not_visible", {"mask-count": "all"})]
)
def test_a_strangers_manifest_with_impossible_blocks_is_refused(where, name, value, tmp_path):
    folder = diagnose(block_model(tiny_sdar), replace(FEW, probes=("mask-count",)), tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    (manifest[where] if where else manifest)[name] = value
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=name):
        read_run(folder)
