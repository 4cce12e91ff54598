"""An adapter is put on the base it was trained on: what our training wrote decides, else another name is a warning."""

import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from maskwise.models.checkpoints.adapter_base import FIELD, base_digest, check_bases
from maskwise.models.checkpoints.examine import examine
from maskwise.models.checkpoints.export import export
from maskwise.models.checkpoints.locations import ZOO
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.support.errors import UserError, UserNotice

BASE, CURED = ZOO / "tiny-llada", ZOO / "tiny-llada+distracted+ma"


def test_an_adapter_of_another_base_is_refused_in_a_line_that_names_both(tmp_path: Path) -> None:
    for call in (
        lambda: open_model("tiny-llada", adapter=CURED),
        lambda: export("tiny-llada", tmp_path / "out", CURED),
        lambda: examine(f"tiny-llada+{CURED}"),
    ):
        with pytest.raises(UserError, match=r"was trained on tiny-llada\+distracted .*not on tiny-llada .*any_base"):
            call()
    assert not (tmp_path / "out").exists()
    assert open_model("tiny-llada", adapter=CURED, any_base=True).kind == "llada"


def test_its_own_base_is_taken_however_it_is_named(tmp_path: Path) -> None:
    copied = shutil.copytree(BASE, tmp_path / "elsewhere")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("tiny-llada+distracted+ma", f"tiny-llada+distracted+{CURED}", "tiny-llada+distracted"):
            examine(name)
        check_bases("elsewhere", copied, [ZOO / "tiny-llada+distracted", CURED])


def test_without_a_digest_another_name_is_a_warning(tmp_path: Path) -> None:
    adapter = shutil.copytree(ZOO / "tiny-llada+distracted", tmp_path / "adapter")
    (adapter / "training.json").unlink()
    with pytest.warns(UserNotice, match="names tiny-llada as its base, and is put on tiny-dream"):
        check_bases("tiny-dream", ZOO / "tiny-dream", [adapter])
    with warnings.catch_warnings():  # a hub name and a local folder may be the same
        warnings.simplefilter("error")
        check_bases("someone/tiny-llada", BASE, [adapter])


def test_the_digest_is_that_of_the_values_whatever_their_type_and_files(tmp_path: Path) -> None:
    weights = load_file(BASE / "model.safetensors")
    names = sorted(weights)
    halves = [{name: weights[name].bfloat16() for name in part} for part in (names[::2], names[1::2])]
    for number, half in enumerate(halves):
        save_file(half, tmp_path / f"{number}.safetensors")
    split = base_digest([tmp_path / "0.safetensors", tmp_path / "1.safetensors"])
    save_file({name: weight.float() for name, weight in weights.items()}, tmp_path / "whole.safetensors")
    assert split == base_digest([tmp_path / "whole.safetensors"]) == base_digest([BASE / "model.safetensors"])
    tuned = {name: weight + 0.05 * torch.ones_like(weight) for name, weight in weights.items()}
    save_file(tuned, tmp_path / "tuned.safetensors")
    assert base_digest([tmp_path / "tuned.safetensors"]) != split


def test_embedded_adapters_say_what_they_were_trained_on() -> None:
    for name in ("tiny-llada+distracted", "tiny-llada+distracted+ma"):
        assert len(json.loads((ZOO / name / "training.json").read_text())[FIELD]) == 12


def test_a_checkpoint_cut_short_is_found_without_loading_it(tmp_path: Path) -> None:
    broken = shutil.copytree(BASE, tmp_path / "broken")
    whole = (BASE / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"broken/model\.safetensors is corrupt or cut short"):
        examine(broken)
    adapter = shutil.copytree(ZOO / "tiny-llada+distracted", tmp_path / "adapter")
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"adapter_model\.safetensors is corrupt or cut short"):
        examine("tiny-llada", adapter)
