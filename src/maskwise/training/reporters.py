"""Reporters of losses: TensorBoard, Weights & Biases, MLflow. Checked without torch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean

if TYPE_CHECKING:
    from transformers import TrainerCallback

REPORTERS = ("wandb", "tensorboard", "mlflow")


def check_reporters(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The reporters named as in transformers: in one text with commas or in a list, or "none"; None if not given.
    A package that is not installed is refused before anything is imported."""
    if given is None:
        return None
    listed = given.split(",") if isinstance(given, str) else given
    names = tuple(dict.fromkeys(name.strip() for name in listed if name.strip() != "none"))
    for name in names:
        if name not in REPORTERS:
            raise UserError(f"unknown --report-to {name!r}{did_you_mean(name, [*REPORTERS, 'none'])}")
        if find_spec(name) is None:
            raise UserError(f"{name} is not installed: pip install {name}, or leave it out of --report-to")
    return names


def chosen_reporters(tensorboard: bool | None, report_to: Sequence[str] | None) -> tuple[str, ...]:
    """The reporters of a run: the checked `report_to`; if it is None, TensorBoard, where installed and not refused."""
    if report_to is not None:
        return tuple(report_to)
    installed = find_spec("tensorboard") is not None
    if tensorboard and not installed:
        raise UserError("TensorBoard is not installed: install tensorboard or leave --tensorboard out")
    return ("tensorboard",) if (installed if tensorboard is None else tensorboard) else ()


def check_callbacks(given: "Sequence[TrainerCallback] | None") -> "list[TrainerCallback]":
    """The Trainer's callbacks, refused where they are something else, such as a reporter's name."""
    from transformers import TrainerCallback

    listed = [given] if isinstance(given, str) or not isinstance(given, Sequence | None) else list(given or [])
    if not all(issubclass(one if isinstance(one, type) else type(one), TrainerCallback) for one in listed):
        raise UserError("callbacks takes a list of transformers' TrainerCallback: name a reporter with --report-to")
    return listed


def reporter_callbacks(reporters: Sequence[str], logs: Path, main_process: bool) -> "list[TrainerCallback]":
    """The Trainer's callbacks of the reporters; TensorBoard writes into `logs`, by the main process alone."""
    from transformers.integrations import TensorBoardCallback, get_reporting_integration_callbacks

    others = [name for name in reporters if name != "tensorboard"]
    callbacks: list[Any] = list(get_reporting_integration_callbacks(others))
    if "tensorboard" in reporters and main_process:
        from torch.utils.tensorboard import SummaryWriter

        callbacks.insert(0, TensorBoardCallback(SummaryWriter(log_dir=str(logs))))
    return callbacks


@contextmanager
def wandb_run(reports: bool) -> Iterator[None]:
    """Finish a Weights & Biases run that begins here, or the next training of this process would be written into it."""
    if not reports:
        yield
        return
    import wandb

    if wandb.run is not None:  # the user's own
        yield
        return
    failed = 1
    try:
        yield
        failed = 0
    finally:
        wandb.finish(exit_code=failed)
