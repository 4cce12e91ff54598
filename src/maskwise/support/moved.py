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
    "models.base": "models.model",
    "models.tokens": "models.tokenizers.tokenizer",
    "models.checkpoints.tokenizer": "models.tokenizers.tokenizer",
    "models.checkpoints.chat": "models.tokenizers.chat",
    "decoding.harness": "lm_eval.model",
    "decoding.plugin": "lm_eval.plugin",
    "decoding.request": "decoding.checks",
    "decoding.rules": "decoding.strategies.choosing",
    "tasks.lm_eval": "lm_eval.tasks",
    "tasks.coherence": "tasks.word_puzzles",
    "tasks.contrast": "tasks.contrast_questions",
    "tasks.labelled": "tasks.labelled_exercises",
    "tasks.points": "tasks.point_clouds",
    "tasks.recall": "tasks.recall_pairs",
    "training.card": "training.model_card",
    "training.folder": "training.run_folder",
    "training.dataset": "training.data.noised_pairs",
    "training.rows": "training.data.noised_rows",
    "diffusion.softmask": "diffusion.objectives.soft_mask",
    "advice.evaluation": "advice.setting_evaluator",
    "scoring.questions": "scoring.repeated_questions",
    "decoding.prompts": "decoding.prompt_ids",
    "decoding.strategies.llada": "decoding.strategies.llada_remasking",
    "decoding.strategies.dream": "decoding.strategies.dream_alg",
    "decoding.strategies.fast_dllm": "decoding.strategies.fast_dllm_parallel",
    "decoding.strategies.plain": "decoding.strategies.unpublished",
    "report.pages.mitigations": "report.pages.mitigations_page",
    "report.pages.toy": "report.pages.toy_page",
    "report.pages.templates": "report.pages.jinja_environment",
    "lm_eval.tasks.documents": "lm_eval.tasks.task_documents",
    "models.attention.blocks": "models.attention.block_attention",
    "probes.answers.attention": "probes.answers.attention_shares",
    "probes.answers.generation_length": "probes.answers.canvas_answers",
    "probes.answers.likelihood_masks": "probes.answers.answer_scores",
    "probes.answers.marginals": "probes.answers.distant_masks",
    "probes.answers.mechanism": "probes.answers.changed_attention",
    "probes.answers.nelbo": "probes.answers.passage_nelbo",
    "probes.answers.order": "probes.answers.unmasking_order",
    "probes.answers.recall": "probes.answers.recalled_values",
    "probes.answers.pairs": "probes.answers.pair_correlation",
    "probes.precision": "probes.until_precise",
    "report.words.published": "report.words.published_values",
    "records.reading": "records.record_files",
    "runs.sample": "runs.run_sample",
    "report.words.advice": "report.words.advice_text",
    "training.run": "training.training_run",
    "training.settings": "training.training_settings",
    "report.words.terminal": "report.words.printed_summary",
    "diffusion.objectives.nelbo": "diffusion.objectives.masked_nelbo",
    "diffusion.process": "diffusion.objectives.masked_nelbo",
}


def _all_moved() -> dict[str, str]:
    """{old: new}, as full module names."""
    found = dict(_RENAMED)
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
