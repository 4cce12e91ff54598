"""Checks of quantised checkpoints that transformers omits; it loads them with the package that wrote them."""

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from math import ceil, prod
from pathlib import Path
from typing import Any

from maskwise.models.peft_access import refuse_endless_patterns
from maskwise.support.errors import UserError

# quant_method of a quantised checkpoint: the packages that must be installed for transformers to load it.
QUANTISERS = {name: ["bitsandbytes"] for name in ("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit")}
QUANTISERS |= {"gptq": ["gptqmodel", "optimum"], "awq": ["gptqmodel"], "torchao": ["torchao"]}
GPTQ_FORMATS = ("gptq", "gptq_v2", "marlin", "bitblas")


def refuse_uninstalled_quantiser(folder: Path, settings: dict[str, Any]) -> None:
    """Quantised weights are loaded by transformers with the package that wrote them, and by nothing else."""
    found = settings.get("quantization_config")
    if found is None:
        return
    method = found.get("quant_method") if isinstance(found, dict) else None
    if not isinstance(method, str) or method not in QUANTISERS:
        raise UserError(
            f"{folder} is quantised ({str(method)[:40]!r}); only {', '.join(QUANTISERS)} are known: use the original"
        )
    if not all(find_spec(package) for package in QUANTISERS[method]):
        raise UserError(
            f"{folder} is quantised with {method}: install {' and '.join(QUANTISERS[method])}, or use the original"
        )


def complete_quantisation(folder: Path, given: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Checks `quantization_config` against the shapes in the weight files, and adds what optimum cannot find itself."""
    refuse_endless_patterns(given, list(shapes), folder / "config.json")
    if given["quant_method"] == "gptq" and _gptq_format(given) not in GPTQ_FORMATS:
        said = str(_gptq_format(given))[:40]
        raise UserError(
            f"{folder / 'config.json'}: checkpoint_format {said!r} is none of {', '.join(GPTQ_FORMATS)}: correct it or "
            "download it again"
        )
    if given["quant_method"] == "gptq" or (given["quant_method"] == "awq" and given.get("version", "gemm") == "gemm"):
        _refuse_other_packing(folder, given, shapes)
    if given["quant_method"] == "gptq":  # optimum knows some names of layers, and LLaDA's is none of them
        matches = (re.fullmatch(r"(.+?)\.\d+\..*\bqweight", name) for name in shapes)
        if first := next(filter(None, matches), None):
            given.setdefault("block_name_to_quantize", first[1])


def _gptq_format(given: Mapping[str, Any]) -> Any:
    """As transformers reads it: the older name first."""
    return next((given[name] for name in ("checkpoint_format", "format") if given.get(name) is not None), "gptq")


def refuse_other_zero_points(folder: Path, given: Mapping[str, Any], zeros: Iterable[int]) -> None:
    """Refuses gptq stated as gptq_v2 or the reverse, where `zeros`, int32 words of one `qzeros`, show it.

    The formats differ only in the zero points, which gptq stores minus 1. In symmetric weights all of them are the
    middle of the range, which identifies the format; in asymmetric weights any zero point is possible.
    """
    said, bits, symmetric = _gptq_format(given), given.get("bits"), given.get("sym", True)
    if given["quant_method"] != "gptq" or said not in ("gptq", "gptq_v2") or not symmetric:
        return
    if type(bits) is not int or bits not in (2, 4, 8):
        return
    middle = 1 << bits - 1
    other, stored = ("gptq_v2", middle) if said == "gptq" else ("gptq", middle - 1)
    if {word % 2**32 for word in zeros} == {sum(stored << place for place in range(0, 32, bits))}:
        raise UserError(
            f"{folder / 'config.json'}: checkpoint_format is {said}, but the zero points in the weights are those of "
            f"{other}: correct it or download it again"
        )


def _refuse_other_packing(folder: Path, given: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a packing other than stated, which gptqmodel does not check and would compute with."""
    bits, group = given.get("bits"), given.get("group_size")
    for name, shape in shapes.items():
        scales = shapes.get(name.removesuffix("qweight") + "scales")
        if name.endswith(".qweight") and scales is not None and not _is_packed(shape, scales, bits, group):
            said = f"bits {str(bits)[:20]} and group_size {str(group)[:20]}"
            raise UserError(
                f"{folder} does not fit its config.json: {name} is not packed with {said}: correct it or download it "
                "again"
            )


def _is_packed(shape: tuple[int, ...], scales: tuple[int, ...], bits: Any, group: Any) -> bool:
    """A map [in, out] is in x out numbers of so many bits, and a row of `out` scales for each group of inputs."""
    if type(bits) is not int or type(group) is not int or bits < 1 or len(scales) != 2 or min(scales) < 1:
        return False
    inputs = prod(shape) * 32 // (bits * scales[1])
    return scales[0] == (ceil(inputs / group) if group > 0 else 1)
