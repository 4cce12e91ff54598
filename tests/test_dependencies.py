"""Every import of the package is declared in pyproject.toml with a lower bound, and the bounds are what CI tests."""

import re
import tomllib

import pytest

from helpers.house import ROOT, third_party_imports

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Import name -> distribution, where the two differ.
DISTRIBUTIONS = {"lm_eval": "lm-eval", "yaml": "pyyaml"}
# What the package imports only where it is there, and never asks for.
NOT_DECLARED = {
    "triton": "comes with torch for CUDA; without it plain torch operations are used (maskwise.kernels.gate)",
    "wandb": "a reporter of transformers' Trainer, used where the user has installed it",
}
# Imported by optional features: the extra that brings it.
EXTRAS = {
    "lm_eval": "lm-eval",
    "datasets": "lm-eval",
    "gradio": "studio",
    "fastapi": "studio",
    "uvicorn": "studio",
    "pyarrow": "data",
}


def requirements(lines):
    """{distribution: lower bound or None}, names as PyPI compares them."""
    found = {}
    for line in lines:
        name, _, bound = re.split(r"[;\s]", line)[0].partition(">=")
        found[re.sub(r"[-_.]+", "-", name).lower()] = bound or None
    return found


REQUIRED = requirements(PROJECT["dependencies"])
OPTIONAL = {extra: requirements(lines) for extra, lines in PROJECT["optional-dependencies"].items()}


@pytest.mark.parametrize("module", sorted(third_party_imports()))
def test_an_import_of_the_package_is_declared_with_a_lower_bound(module):
    if module in NOT_DECLARED:
        return
    declared = OPTIONAL[EXTRAS[module]] if module in EXTRAS else REQUIRED
    distribution = DISTRIBUTIONS.get(module, module).replace("_", "-")
    assert distribution in declared, f"{module} is imported by {third_party_imports()[module]}"
    assert declared[distribution], f"{distribution} has no lower bound"


def test_nothing_is_required_that_is_never_imported():
    imported = {DISTRIBUTIONS.get(module, module).replace("_", "-") for module in third_party_imports()}
    assert REQUIRED.keys() <= imported
    assert NOT_DECLARED.keys() | EXTRAS.keys() <= third_party_imports().keys()


def test_the_oldest_versions_of_the_workflow_are_the_lower_bounds():
    """torch is named by the job itself, because its CPU build comes from another index."""
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)$", (ROOT / "oldest.lock").read_text(), flags=re.MULTILINE))
    extras = (group for extra, group in OPTIONAL.items() if extra not in ("dev", "docs"))
    bounds = {name: bound for group in (REQUIRED, *extras) for name, bound in group.items()}
    oldest_torch = bounds.pop("torch")
    assert pinned == bounds
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    assert f"torch: torch=={oldest_torch}.0" in workflow and "pins: -c oldest.lock" in workflow
