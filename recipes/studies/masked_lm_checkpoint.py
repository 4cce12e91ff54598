"""Write the pretrained masked language model of a Python wheel as a checkpoint that maskwise opens.

    pip download --no-deps --only-binary=:all: antiberty==0.1.3   # 97 MB: BERT, 26 M parameters, antibody sequences
    python recipes/studies/masked_lm_checkpoint.py antiberty-0.1.3-py3-none-any.whl antiberty
    maskwise diagnose antiberty --probes natural-text,total-correlation --text chains.txt

The wheels of antiberty 0.1.3 (Ruffolo et al., arXiv 2112.07782) and rxnmapper 0.4.3 (Schwaller et al., Science
Advances 2021) hold trained weights as pickles. They are read with weights_only, so no code of theirs runs, and written
as safetensors. Nothing of a wheel is imported. Heads for other tasks than masked tokens are left out.
"""

import argparse
import io
import json
import zipfile
from pathlib import Path

import torch
from transformers import AlbertConfig, AlbertForMaskedLM, BertConfig, BertForMaskedLM, BertTokenizer

WEIGHTS = "pytorch_model.bin"
CLASSES = {"bert": (BertConfig, BertForMaskedLM), "albert": (AlbertConfig, AlbertForMaskedLM)}


def write_checkpoint(wheel: Path, out: Path) -> Path:
    """The one model in the wheel, with its vocabulary, as config.json, model.safetensors and tokenizer.json."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (weights_name,) = (name for name in names if name.endswith(WEIGHTS))
        (vocabulary_name,) = (name for name in names if name.endswith("vocab.txt"))
        settings = json.loads(packed.read(weights_name.replace(WEIGHTS, "config.json")))
        weights = torch.load(io.BytesIO(packed.read(weights_name)), map_location="cpu", weights_only=True)
        tokens = packed.read(vocabulary_name).decode().split("\n")
    config_class, net_class = CLASSES[settings["model_type"]]
    net = net_class(config_class(**{name: settings[name] for name in vars(config_class()) if name in settings}))
    absent, _ = net.load_state_dict(weights, strict=False)
    tied = {name for name in absent if name.endswith(("decoder.bias", "decoder.weight", "position_ids"))}
    if set(absent) - tied:
        raise SystemExit(f"{wheel} lacks {sorted(set(absent) - tied)[:3]}")
    net.tie_weights()
    net.save_pretrained(out)
    vocabulary = {token: place for place, token in enumerate(filter(None, (token.strip() for token in tokens)))}
    BertTokenizer(vocab=vocabulary, do_lower_case=False).save_pretrained(out)
    return out


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("wheel", type=Path)
    arguments.add_argument("out", type=Path)
    given = arguments.parse_args()
    print(write_checkpoint(given.wheel, given.out))
