"""What can be checked before weights are loaded."""

import shutil
from pathlib import Path

import pytest

from maskwise.models.checkpoints.examine import examine
from maskwise.models.checkpoints.locations import ZOO
from maskwise.support.errors import UserError


def test_a_checkpoint_cut_short_is_found_without_loading_it(tmp_path: Path) -> None:
    broken = shutil.copytree(ZOO / "tiny-llada", tmp_path / "broken")
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"broken/model\.safetensors is corrupt or cut short"):
        examine(broken)
    adapter = shutil.copytree(ZOO / "tiny-llada+ma", tmp_path / "adapter")
    examine("tiny-llada", adapter)
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"adapter_model\.safetensors is corrupt or cut short"):
        examine("tiny-llada", adapter)
