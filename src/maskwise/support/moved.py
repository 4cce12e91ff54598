"""Modules that moved in 0.3: for one version, importing an old path gives the module at its new place.

Saved adapters name our classes by their old modules (`parent_library`), and editable installs keep old entry points:
one that cannot be imported makes `import torch` itself fail. `import maskwise` installs the finder; it imports nothing.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_FOLDERS = {
    "": "support: errors files imports interrupts nearest processes progress randomness terminal",
    "models": "models.families: dream fast_dllm illada llada llada2 llada_moe nemotron sdar experts routing layers "
    "quantise packing; models.checkpoints: adapters cards catalog configuration convert export fingerprint gguf "
    "gguf_llama locations networks opening quantised_files saving verify; models.tokenizers: chat",
    "training": "training.data: pairs documents",
}
_RENAMED = {
    "models": "base model, tokens tokenizers.tokenizer",
    "decoding": "request checks, rules strategies.choosing, prompts prompt_ids",
    "tasks": "coherence word_puzzles, contrast contrast_questions, labelled labelled_exercises, points point_clouds, "
    "recall recall_pairs",
    "training": "card model_card, folder run_folder, dataset data.noised_pairs, rows data.noised_rows, "
    "run training_run, settings training_settings",
    "diffusion": "softmask objectives.soft_mask, process objectives.masked_nelbo",
    "scoring": "questions repeated_questions",
    "probes.answers": "attention attention_shares, generation_length canvas_answers, likelihood_masks answer_scores, "
    "marginals distant_masks, mechanism changed_attention, nelbo passage_nelbo, order unmasking_order, "
    "recall recalled_values, pairs pair_correlation",
    "runs": "sample run_sample",
}


def _all_moved() -> dict[str, str]:
    """{old: new}, as full module names."""
    found = {"decoding.harness": "lm_eval.model", "decoding.plugin": "lm_eval.plugin", "tasks.lm_eval": "lm_eval.tasks"}
    for parent, pairs in _RENAMED.items():
        found |= {f"{parent}.{old}": f"{parent}.{new}" for old, new in map(str.split, pairs.split(", "))}
    for parent, folders in _FOLDERS.items():
        for folder in folders.split("; "):
            new, names = folder.split(": ")
            found |= {f"{parent}.{name}".lstrip("."): f"{new}.{name}" for name in names.split()}
    return {f"maskwise.{old}": f"maskwise.{new}" for old, new in found.items()}


MOVED = _all_moved()


class _Alias:
    """Loader of a moved module under its old name."""

    def __init__(self, new: str) -> None:
        self.new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.new)
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own_spec  # the import system has put the alias's in its place


class _Finder:
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in MOVED:
            return None
        return ModuleSpec(name, _Alias(MOVED[name]), is_package=name.endswith(".lm_eval"))  # type: ignore[arg-type]


def install() -> None:
    """Behind the other finders: asked only for a module that is not found where it is looked for."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
