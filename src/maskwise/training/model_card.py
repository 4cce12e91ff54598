"""The model card of a run: base model, data, settings, the measures before and after, and how to load it."""

from pathlib import Path
from typing import Any

from maskwise.models.checkpoints.cards import card, licence_of, public_name
from maskwise.training.evaluation import many_masks
from maskwise.training.training_settings import PRESETS, SharedSettings, TrainSettings, TuneSettings

MEASURES = {
    "ce": "cross-entropy (nats per token)",
    "tv": "TV between few and many masks",
    "accuracy_few": "token accuracy, few masks",
    "accuracy_many": "token accuracy, many masks",
    "gap": "difference in token accuracy",
    "nelbo": "NELBO (nats per token)",
    "next_few": "NLL of the next token, few masks (nats)",
    "next_many": "NLL of the next token, many masks (nats)",
    "mask_tax": "mask tax (nats)",
}


def trained_card(result: dict[str, Any], settings: SharedSettings, data: dict[str, str], source: Path | None) -> str:
    """The README.md of an adapter or a trained checkpoint."""
    base = public_name(result["model"])
    tuned = isinstance(settings, TuneSettings)
    method = _method(settings)
    what = "All weights" if settings.full else f"A LoRA adapter (rank {settings.lora_rank})"
    examples = f"{result['pairs']} pairs" if tuned else f"{result['rows']} rows of documents"
    parts = [
        f"{what} of `{base}`, trained by `maskwise {'tune' if tuned else 'train'}` with {method}.",
        f"## Data\n\n{examples} of `{data['file']}` (SHA-256 `{data['sha256']}`), {result['held_out']} held out.",
        f"## Settings\n\n{_settings(settings)}",
        f"## Measured on the held-out examples\n\n{_measures(result)}" if result["before"] else "",
        f"## How to load it\n\n{_loading(base, settings.full)}",
    ]
    title = f"{base}, {'tuned' if tuned else 'trained'}"
    library = "maskwise" if settings.full else "peft"
    return card(title, list(filter(None, parts)), result["model"], licence_of(source), library)


def _method(settings: SharedSettings) -> str:
    if not isinstance(settings, TuneSettings):
        return "masked diffusion on documents"
    paper = "the mask-agnostic loss (Piskorz et al., arXiv 2511.21338)"
    return f"{paper}, anchored at its own answers without masks before tuning" if settings.anchored else paper


def _settings(settings: SharedSettings) -> str:
    """Every setting that is not the default of its command."""
    plain = TrainSettings() if isinstance(settings, TrainSettings) else PRESETS["paper-base"]
    shown = {"steps", "batch", "accumulation", "learning_rate", "lora_rank", "lora_alpha", "seed"}
    changed = {name: value for name, value in vars(settings).items() if name in shown or value != getattr(plain, name)}
    lines = [f"| {name.replace('_', ' ')} | {value} |" for name, value in changed.items()]
    others = "The other settings are the defaults of maskwise; settings.json in this folder has them all."
    return "\n".join(["| setting | value |", "|---|---|", *lines, "", others])


def _measures(result: dict[str, Any]) -> str:
    before, after, masks = result["before"], result["after"], result["masks"]
    lines = [f"| {label} | {before[key]:.4f} | {after[key]:.4f} |" for key, label in MEASURES.items() if key in before]
    note = f"Few masks are {masks['few']}, many {many_masks(masks)}."
    return "\n".join(["| measure | before | after |", "|---|---|---|", *lines, "", note])


def _loading(base: str, full: bool) -> str:
    ours = "import maskwise as mw\n\nmodel = mw.open(FOLDER)        # this folder, or its name on the hub"
    if full:
        return f"```python\n{ours}\n```"
    first = f"# {base} carries an adapter itself; first: maskwise export {base} --out BASE\n" if "+" in base else ""
    opened = "BASE" if first else base
    peft = (
        "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n"
        "import maskwise.models.auto   # the base model's class; or trust_remote_code=True, for its original code\n\n"
        f'{first}net = AutoModelForCausalLM.from_pretrained("{opened}")\nnet = PeftModel.from_pretrained(net, FOLDER)'
    )
    return f"```python\n{ours}\n```\n\nWith PEFT alone:\n\n```python\n{peft}\n```"
