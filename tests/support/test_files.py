"""Names that lead out of a folder, and folders that two processes would write to."""

import json
import os
import signal
import subprocess
import sys

import pytest

import maskwise as mw
from helpers.tiny import llada_net, tiny_llada
from maskwise.models.checkpoints.fingerprint import LANES, checksums, fingerprint
from maskwise.models.checkpoints.networks import weight_files
from maskwise.support.errors import UserError
from maskwise.support.files import damaged, is_plain_name, only_user_of

HOLDER = """
import sys, time
from pathlib import Path
from maskwise.support.files import only_user_of
with only_user_of(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_kept_out_until_the_first_is_killed(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="in use by another process"), only_user_of(tmp_path):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    with only_user_of(tmp_path):
        assert os.listdir(tmp_path) == []  # a lock leaves nothing behind


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a\0b"])
def test_names_that_lead_elsewhere_are_not_plain(name):
    assert not is_plain_name(name) and is_plain_name("model-00001-of-00002.safetensors")


@pytest.mark.parametrize("where", ["../victim.safetensors", "/tmp/victim.safetensors", "sub/victim.safetensors"])
def test_an_index_cannot_name_files_outside_its_folder(where, tmp_path):
    folder = tmp_path / "model"
    llada_net().save_pretrained(folder)
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = {"metadata": {}, "weight_map": {"model.transformer.wte.weight": where}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="not a file of its folder"):
        weight_files(folder)
    with pytest.raises(UserError, match="not a file of its folder"):
        mw.open(folder)


def test_a_file_that_cannot_be_opened_is_named_with_the_problem(tmp_path):
    line = str(damaged(tmp_path / "gone.safetensors", "no such file", "copy it again"))
    assert line.endswith("gone.safetensors is corrupt or cut short (no such file): copy it again")


def test_a_fingerprint_sees_every_byte_of_every_weight():
    model = tiny_llada()
    before = fingerprint(model)
    weight = model.net.get_parameter("model.transformer.blocks.0.q_proj.weight").data
    flat = weight.view(-1)
    for place in (1, len(flat) // 3, len(flat) - 2):
        kept = flat[place].clone()
        flat[place] += 1e-3
        assert fingerprint(model) != before
        flat[place] = kept
    flat[[2, 5]] = flat[[5, 2]]
    assert fingerprint(model) != before
    flat[[2, 5]] = flat[[5, 2]]
    assert fingerprint(model) == before


def test_checksums_by_hand_and_of_odd_sizes():
    import torch

    words = torch.arange(3 * LANES // 2, dtype=torch.int64)
    first, second = checksums(words).tolist()
    golden = 0x9E3779B97F4A7C15
    factors = [(n * golden) % 2**64 | 1 for n in range(1, 6)]
    assert checksums(words[:5]).tolist()[0] % 2**64 == sum(n * factor for n, factor in enumerate(factors)) % 2**64
    assert first != second and len(checksums(torch.ones(3, dtype=torch.float16))) == 1
    assert checksums(torch.tensor(2.0)).tolist() != checksums(torch.tensor(3.0)).tolist()
