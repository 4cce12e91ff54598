"""Saving a model to a folder or uploading it to the Hugging Face hub."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError

from maskwise.models.families.padded import as_published
from maskwise.models.interface import ModelInterface
from maskwise.support.errors import UserError
from maskwise.support.files import only_user_of, refuse_occupied, writing


@contextmanager
def written_aside(out: Path) -> Iterator[Path]:
    """A folder next to `out`, renamed to it when it is whole: a killed command leaves nothing that opens.
    One process at a time writes it. What a killed one left in it is removed."""
    if not out.name:
        raise UserError(f"--out {out} has no name of its own: name a new folder")
    aside = out.with_name(f"{out.name}.partial")
    if aside.is_symlink():
        raise UserError(f"{aside} is a link: remove it, or choose another --out")
    try:
        aside.mkdir(parents=True, exist_ok=True)
        with only_user_of(aside):
            for left in aside.iterdir():
                left.unlink()
            yield aside
            aside.replace(out)
    except (OSError, SafetensorError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise UserError(f"cannot write to {out}: {reason}; choose another --out") from None


def save(model: ModelInterface, folder: str | Path) -> list[str]:
    """Saves the network or its adapter, and the tokenizer; returns the file names."""
    if model.weights is not None:
        raise UserError(f"{model.name} was quantised to {model.weights} when it was opened: open it without to save it")
    refuse_occupied(Path(folder))
    with writing(f"to {folder}", "choose another folder"):
        if hasattr(model.net, "peft_config"):  # PEFT would ask the hub whether the vocabulary was changed
            model.net.save_pretrained(str(folder), save_embedding_layers=False)  # type: ignore[operator]
        else:
            model.core.save_pretrained(folder)
        if model.tokenizer is not None:
            as_published(model.tokenizer).save_pretrained(folder)
    return sorted(file.name for file in Path(folder).iterdir())


def push(model: ModelInterface, repo_id: str, private: bool | None, commit_message: str, dry_run: bool) -> list[str]:
    """Saves it to a temporary folder and uploads that, unless it is a dry run; returns the names of the files."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id) is None:
        raise UserError(f"{repo_id!r} is not a name on the hub: write it like OWNER/NAME")
    with TemporaryDirectory() as place:
        files = save(model, Path(place) / "model")
        if not dry_run:
            from huggingface_hub import HfApi
            from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

            try:
                hub = HfApi()
                hub.create_repo(repo_id, private=private, exist_ok=True)
                hub.upload_folder(repo_id=repo_id, folder_path=Path(place) / "model", commit_message=commit_message)
            except (HfHubHTTPError, LocalTokenNotFoundError, OSError) as problem:
                reason = str(problem).strip().splitlines()[0]
                raise UserError(f"{repo_id} could not be uploaded ({reason}): see hf auth login") from None
    return files
