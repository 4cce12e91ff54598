"""A user's script over all of `import maskwise as mw`; tests/test_library.py has mypy --strict read it."""

from collections.abc import Sequence
from pathlib import Path

import maskwise as mw


def describe(run: mw.Run) -> str:
    lead: float | None = run.measured["mask-count"][0].value
    page: Path = run.report()
    first: str = run.prompt(run.table("mask-count").iloc[0])
    return f"{run.finding} {run.folder.name}: {lead}, {len(first)} characters, {page}"


def main(pairs: Sequence[dict[str, str]]) -> int:
    model: mw.Model = mw.open("tiny-llada", device="cpu")
    texts: list[str] = [one.text for one in mw.generate(model, ["Once upon a time"], max_new_tokens=8, rule="margin")]
    likelihood: float = mw.score(model, pairs)[0].log_likelihood
    try:
        run = mw.diagnose(model, ["mask-count"], preset="quick", questions=1)
    except mw.UserError as problem:
        print(problem)
        return 2
    print(describe(run), describe(mw.read_run(run.folder)), likelihood, texts)
    run.plot("mask-count").savefig("mask-count.png")
    print(run.estimates().columns, run.figures, run.screen.advice)
    losses: list[float] = mw.tune(model, pairs, "runs/tuned", preset="quick", steps=2)["losses"]
    print(losses, mw.train("tiny-llada", [{"text": "Some text."}], "runs/trained", steps=2)["steps"])
    print(mw.compare("tiny-llada", "runs/tuned", preset="quick").rows[0].changes[0].value)
    merged: Path = mw.export("tiny-llada", "merged", adapter="runs/tuned")
    converted: Path = mw.convert("tiny-qwen", "converted", shift=False)
    print(merged, converted, mw.wrap(model.core, model.tokenizer).window)
    advice: str = mw.advise(model, pairs, exact=True, questions=50).command
    print(advice, mw.toy(seed=1).marginals["A"], mw.__version__)
    return 0
