"""sample.json of a run folder: a few prompts as the model was given them, with its likeliest answers.

A prompt: {"probe", "task", "point", "condition", "answer", "correct", "tokens": [text, ...], "row", "top": [[text,
probability], ...], "probability"}: `row` is the place of the answer's mask among the tokens, or just behind them for an
autoregressive model; `probability` that of the right answer. "attribution" where it was measured: for each token the
norm of the answer's gradient, of the largest (probes/answers/gradients.py).
"""

from pathlib import Path
from typing import Any

from maskwise.records.schema import problem_of_sampled
from maskwise.support.errors import UserError
from maskwise.support.files import parse_json, replace_file, to_json

SAMPLE = "sample.json"
MOST_PROMPTS, MOST_TOKENS, MOST_BYTES = 48, 64_000, 4 << 20

Sampled = dict[str, Any]


def write_sample(folder: Path, prompts: list[Sampled]) -> None:
    """Whole or not at all."""
    try:
        replace_file(folder / SAMPLE, [to_json(prompts) + "\n"])
    except OSError as problem:
        raise UserError(
            f"cannot write to {folder}: {problem.strerror}; the records so far are kept, run it again to go on"
        ) from None


def read_sample(folder: Path, manifest: dict[str, Any]) -> list[Sampled]:
    """The prompts, checked; none where the run has no sample, as those of earlier versions have not."""
    file = folder / SAMPLE
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise UserError(f"cannot read {file}: {problem.strerror}") from None
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
        prompts = parse_json(content.decode("utf-8"))
        if not isinstance(prompts, list) or len(prompts) > MOST_PROMPTS:
            raise ValueError(f"it is not a list of at most {MOST_PROMPTS} prompts")
    except ValueError as problem:
        raise _refused(file, str(problem)) from None
    for number, prompt in enumerate(prompts, 1):
        problem_found = problem_of_sampled(prompt, manifest["settings"]["probes"])
        if problem_found:
            raise _refused(file, f"prompt {number}: {problem_found}")
    return prompts


def _refused(file: Path, problem: str) -> UserError:
    return UserError(f"{file} is not a sample of this run ({problem}); remove the file to go on")
