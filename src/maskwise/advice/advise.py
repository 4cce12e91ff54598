"""`advise`: which canvas, block, strategy, number of steps and cache to decode with, from a user's own questions.

What the user gives is checked before torch is imported; searching.py does the work.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwise.advice.quality import Judge
from maskwise.advice.search_request import prepare
from maskwise.support.files import Records
from maskwise.support.garbage_collection import collection_paused

if TYPE_CHECKING:
    from maskwise.models.model import Model

SEARCHED = ("max_new_tokens", "canvases", "blocks", "rules", "steps", "caches")


def advise(
    model: "str | Path | Model",
    data: Records | None = None,
    *,
    exact: bool = False,
    pattern: str | None = None,
    function: str | Judge | None = None,
    judge: "str | Path | Model | None" = None,
    budget: float | None = None,
    max_new_tokens: int | None = None,
    canvases: str | Sequence[str] | None = None,
    blocks: str | Sequence[int] | None = None,
    rules: str | Sequence[str] | None = None,
    steps: str | Sequence[int] | None = None,
    caches: str | Sequence[str] | None = None,
    cost: str | None = None,
    templates: str | Path | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    dtype: str = "auto",
    device: str | None = None,
    adapter: str | Path | None = None,
    check_weights: bool = True,
    any_base: bool = False,
    on_cost: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Finds the settings to decode a model with, by its answers to your questions. Called again, it resumes.

    Arguments:
        model: a name, or an opened masked model.
        data: a .jsonl file or a list of dicts, each with prompt and answer; else the embedded questions.
        exact, pattern, function, judge: what a good answer is; one of them must be given with data. exact: the text is
            the answer. pattern: a regular expression whose first group finds the same in text and answer. function:
            f(text, answer) gives a number; a function or "module:name". judge: a model whose log-likelihood counts.
        budget: minutes of decoding; else all questions are asked (of the embedded ones as many as 8 minutes allow).
        max_new_tokens, canvases, blocks, rules, steps, caches: what is searched; rules as "threshold:tau=0.8", caches
            as "dual:refresh=8", lists or texts with commas.
        cost: what is to be small, passes (forward passes, then seconds) or seconds.
        templates: a YAML file of templates, each a name and a text with {prompt}, under which the settings that are
            named are confirmed too.
        out: the folder of the search and its page; else one under runs/. seed: the order of the questions.
        dtype, device, adapter, check_weights, any_base: as in `mw.open`; of a model given by name. device and
            check_weights are those of the judge too.
        on_cost: called with a sentence that says what the search will cost, before it starts.

    Returns:
        What `maskwise advise --json` prints: "sentence", "winner", "all_equal", "advice" (the settings that are shown
        to meet a goal, with their quality, passes, and how to write them), "undecided" (the goals that none is shown to
        meet, with the number of questions that would decide), "confirmed", "dropped", "not_tried".

    >>> import maskwise as mw
    >>> kinds = [{"prompt": f"Word: {word}\\nKind:[", "answer": "animal"} for word in ["otter", "zebra"] * 16]
    >>> found = mw.advise("tiny-llada", kinds, pattern="animal", max_new_tokens=4, blocks=[2], steps=[2],
    ...                   canvases="fixed,growing", rules="low-confidence", caches="none", out="runs/advised")
    >>> found["questions"]["held_back"], found["advice"]  # too few questions to show that a faster one is as good
    (24, [])
    >>> [row["goal"] for row in found["undecided"]]
    ['best quality', 'fastest within 1 point', 'fastest within 3 points']
    """
    searched = {name: value for name, value in locals().items() if name in SEARCHED}
    measure = (exact, pattern, function, judge)
    request = prepare(data, *measure, budget, cost, seed, templates, **searched)
    with collection_paused():
        from maskwise.advice.searching import search_settings
        from maskwise.models.checkpoints.examine import examine
        from maskwise.models.checkpoints.opening import opened_model
        from maskwise.records.folder import make_run_folder
        from maskwise.runs.runner import own_device

    place = own_device(device)
    named, judge_named = isinstance(model, str | Path), isinstance(judge, str | Path)
    if isinstance(judge, str | Path):  # before the model is opened
        examine(judge)
    if isinstance(model, str | Path):
        examine(model, adapter, any_base)
    if out is not None:
        make_run_folder(Path(out))
    choices: Any = {"dtype": dtype, "adapter": adapter, "check_weights": check_weights, "any_base": any_base}
    opened = opened_model(model, device=place if named else device, **choices)
    scoring = None
    if judge is not None:
        scoring = opened_model(judge, device=place if judge_named else device, check_weights=check_weights)
    name = str(model) if named else opened.name
    try:
        return search_settings(request, opened, scoring, name, None if adapter is None else str(adapter), out, on_cost)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the answers so far are kept: run it again to go on") from None
