"""python -m soak.wrong_calls: 120 wrong command lines, 30 wrong Python calls and their answers, as docs/wrong-calls.md.

They were written from README, --help and the habits of transformers, TRL, lm-eval and LLaDA's scripts. Each must end in
one line that names the problem, with status 2 (in Python: an exception of one line), and leave no traceback.
"""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_A_CALL = 20
PAGE = Path(__file__).parents[1] / "docs" / "wrong-calls.md"

COMMANDS = """
maskwise tiny-llada
maskwise generate --model tiny-llada --prompt hi
maskwise generate "Once upon a time"
maskwise generate tiny-lada hi
maskwise generate llada hi
maskwise generate GSAI-ML/LLaDA-8B hi --device gpu
maskwise generate ./checkpoints/best hi
maskwise generate notes.txt hi
maskwise generate weights.bin hi
maskwise generate gpt2 hi
maskwise generate bert hi
maskwise generate empty_folder hi
maskwise generate tiny-llada hi --max-tokens 20
maskwise generate tiny-llada hi --max-length 20
maskwise generate tiny-llada hi --num-steps 20
maskwise generate tiny-llada hi --steps 0
maskwise generate tiny-llada hi --steps 1.5
maskwise generate tiny-llada hi --steps 100 --gen-length 10
maskwise generate tiny-llada hi --gen-length 0
maskwise generate tiny-llada hi --gen-length 100000
maskwise generate tiny-llada hi --block-length 5 --gen-length 12
maskwise generate tiny-llada hi --steps 5 --block-length 4 --gen-length 12
maskwise generate tiny-llada hi --remasking lowconfidence
maskwise generate tiny-llada hi --remasking entropy
maskwise generate tiny-llada hi --alg maskgit
maskwise generate tiny-llada hi --alg-temp 0.1
maskwise generate tiny-llada hi --temperature -1
maskwise generate tiny-llada hi --temperature hot
maskwise generate tiny-llada hi --do-sample
maskwise generate tiny-llada hi --num-beams 4
maskwise generate tiny-llada hi --top-p 2
maskwise generate tiny-llada hi --top-k -5
maskwise generate tiny-llada hi --cfg-scale -1
maskwise generate tiny-llada hi --mask-id 126336
maskwise generate tiny-llada hi --rule best
maskwise generate tiny-llada hi --rule threshold --parameter tau
maskwise generate tiny-llada hi --rule threshold --parameter tau=high
maskwise generate tiny-llada hi --rule threshold --parameter tau=2
maskwise generate tiny-llada hi --cache kv
maskwise generate tiny-llada hi --cache dual --refresh 0
maskwise generate tiny-llada hi --device gpu
maskwise generate tiny-llada hi --device cuda:7
maskwise generate tiny-llada hi --dtype fp16
maskwise generate tiny-llada hi --dtype 16
maskwise generate tiny-llada hi --load-in-4bit
maskwise generate tiny-llada hi --weights int8
maskwise generate tiny-llada hi --chat
maskwise generate tiny-llada hi --adapter pairs.jsonl
maskwise generate tiny-llada hi --adapter tiny-llada+ma
maskwise generate tiny-llada hi --file pairs.jsonl
maskwise generate tiny-llada --file none.txt
maskwise generate tiny-llada --file pairs.csv
maskwise generate tiny-llada --file empty.jsonl
maskwise generate tiny-llada --prompt hi
maskwise generate tiny-llada hi there
maskwise generate tiny-llada hi --seed -1
maskwise generate tiny-llada hi --batch 0
maskwise generate tiny-llada hi --out pairs.jsonl
maskwise generate tiny-llada hi --output out.txt
maskwise chat tiny-llada
maskwise eval tiny-llada --tasks gsm8k
maskwise lm_eval --model tiny-llada
maskwise score tiny-llada
maskwise score tiny-llada "Once upon" " a time"
maskwise score tiny-llada --data none.jsonl
maskwise score tiny-llada --data sharegpt.jsonl
maskwise score tiny-llada --data broken.jsonl
maskwise score tiny-llada --data notes.txt
maskwise score tiny-llada --data text.jsonl
maskwise score tiny-llada --data chat.jsonl
maskwise score tiny-llada --data masked.jsonl
maskwise score tiny-llada --data both.jsonl
maskwise score tiny-llada --data pairs.jsonl --method mc
maskwise score tiny-llada --data pairs.jsonl --samples 0
maskwise score tiny-llada --data pairs.jsonl --mc_num 128
maskwise score tiny-qwen --data pairs.jsonl --method exact
maskwise score tiny-llada --data pairs.jsonl --masks 100000
maskwise diagnose tiny-lada
maskwise diagnose tiny-llada --fast
maskwise diagnose tiny-llada --quick --full
maskwise diagnose tiny-llada --probes masks
maskwise diagnose tiny-llada --probes mask-count;location
maskwise diagnose tiny-llada --points ten
maskwise diagnose tiny-llada --points 0
maskwise diagnose tiny-llada --distractors 99999
maskwise diagnose tiny-llada --relevant 1-10
maskwise diagnose tiny-llada --precision 0
maskwise diagnose tiny-llada --data gsm8k
maskwise diagnose tiny-llada --data gsm8k=none --probes generation-length
maskwise diagnose tiny-llada --data prompts=sharegpt.jsonl --probes generation-length
maskwise diagnose tiny-llada --quick --chat
maskwise diagnose tiny-llada --quick --words notes.txt
maskwise diagnose tiny-llada --quick --out gpt2
maskwise diagnose tiny-llada tiny-dream --out runs/both
maskwise diagnose tiny-qwen --quick --probes mask-count
maskwise compare tiny-llada
maskwise compare tiny-llada tiny-llada
maskwise compare tiny-llada runs/none
maskwise report
maskwise report runs/none
maskwise report notes.txt
maskwise run-card empty_folder
maskwise tune tiny-llada
maskwise tune tiny-llada --data sharegpt.jsonl
maskwise tune tiny-llada --data pairs.jsonl --epochs 3
maskwise tune tiny-llada --data pairs.jsonl --lr high
maskwise tune tiny-llada --data pairs.jsonl --lr -1
maskwise tune tiny-llada --data pairs.jsonl --lora-r 8
maskwise tune tiny-llada --data pairs.jsonl --preset fast
maskwise tune tiny-llada --data pairs.jsonl --out gpt2
maskwise tune tiny-llada --data pairs.jsonl --context 100000
maskwise tune tiny-qwen --data pairs.jsonl
maskwise train tiny-llada --data notes.txt
maskwise train tiny-llada --data both_texts.jsonl --out new
maskwise convert tiny-llada --out new
maskwise convert gpt2 --out new
maskwise export tiny-llada --out new
maskwise export tiny-llada --adapter empty_folder --out new
maskwise advise tiny-llada --data pairs.jsonl
maskwise models tiny-lada
"""


def python_calls() -> list[tuple[str, Callable[[], Any]]]:
    """Each as it is typed, with the same as a function; `model` is an open tiny-llada."""
    import maskwise as mw

    model = mw.open("tiny-llada", device="cpu")
    names = {"mw": mw, "model": model}
    return [(line, lambda line=line: eval(line, names)) for line in PYTHON.strip().splitlines()]  # type: ignore[misc]


PYTHON = """
mw.open("tiny-lada")
mw.open()
mw.open("tiny-llada", device_map="balanced")
mw.open("tiny-llada", torch_dtype="bfloat16")
mw.open("tiny-llada", dtype="bf16")
mw.open("tiny-llada", device="gpu")
mw.open("tiny-llada", adapter="none")
mw.from_pretrained("tiny-llada")
model.generate()
model.generate("hi", max_tokens=3)
model.generate("hi", max_length=3)
model.generate("hi", max_new_tokens="3")
model.generate("hi", num_beams=4)
model.generate("hi", temperature="hot")
model.generate(3)
model.generate("hi", batch=0)
model.generate(None)
model.generate([[99999]])
model.generate({"prompt": "hi"})
model.generate("hi", rule="best")
model(input_ids=[[1, 2]])
model.predict("hi", [0])
model.predict([[1, 2]], [[5]])
mw.generate("hi", model)
mw.score(model, "Once upon a time")
mw.score(model, [{"question": "a"}])
mw.score(model, {"prompt": ["a"], "answer": ["b"]})
mw.diagnose(model, probe="mask-count")
mw.tune(model, data=[("a", "b")])
mw.compare(model)
"""


@dataclass(frozen=True)
class Answered:
    """A wrong call and what came of it. fault: why the answer is not good enough, or empty."""

    call: str
    answer: str
    fault: str


class StillRunning(Exception):
    """A call that began to work instead of being refused."""


def _ring(number: int, frame: Any) -> None:
    raise StillRunning


def run_commands() -> Iterator[Answered]:
    import shlex

    from typer.testing import CliRunner

    from maskwise.cli import app

    signal.signal(signal.SIGPROF, _ring)
    for line in COMMANDS.strip().splitlines():
        signal.setitimer(signal.ITIMER_PROF, SECONDS_A_CALL)
        done = CliRunner().invoke(app, shlex.split(line)[1:], prog_name="maskwise")
        signal.setitimer(signal.ITIMER_PROF, 0)
        said = done.stderr.strip()
        if isinstance(done.exception, StillRunning):
            fault = f"accepted: still running after {SECONDS_A_CALL} s of processor time"
        elif done.exception is not None and not isinstance(done.exception, SystemExit):
            fault = f"traceback: {type(done.exception).__name__}: {done.exception}"
        elif done.exit_code != 2:
            fault = f"accepted with status {done.exit_code}"
        else:
            fault = "" if len(said.splitlines()) == 1 else f"{len(said.splitlines())} lines"
        if fault:
            print(f"{line}\n    {fault}\n    {said[:400]}", flush=True)
        yield Answered(line, said.removeprefix("maskwise: "), fault)


def run_python() -> Iterator[Answered]:
    from maskwise.support.errors import UserError

    for line, call in python_calls():
        try:
            found = call()
        except (UserError, TypeError, AttributeError) as problem:
            said = f"{type(problem).__name__}: {problem}"
            fault = "" if "\n" not in said and _is_ours(problem) else "not an answer of ours"
            yield Answered(line, said, fault)
        except Exception as problem:
            yield Answered(line, f"{type(problem).__name__}: {problem}".splitlines()[0], "not an answer of ours")
        else:
            yield Answered(line, repr(found)[:80], "accepted")


def _is_ours(problem: BaseException) -> bool:
    """A UserError; or Python's own about the names of arguments and attributes, raised by the call itself."""
    if type(problem).__name__ == "UserError":
        return True
    frames = 0
    trace = problem.__traceback__
    while trace is not None:
        frames, trace = frames + 1, trace.tb_next
    return frames <= 4


@contextmanager
def working_folder() -> Iterator[Path]:
    """What a newcomer has lying about."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}]
        rows = {
            "pairs": [{"prompt": f"{n} and {n} is", "answer": f" {2 * n}."} for n in range(8)],
            "sharegpt": [{"conversations": [{"from": "human", "value": "hi"}]}],
            "text": [{"text": "Once upon a time."}],
            "chat": [{"messages": turns}],
            "masked": [{"prompt": "a", "answer": "<|mask|>"}],
            "both": [{"prompt": "a", "answer": "b", "completion": "c"}],
            "both_texts": [{"text": "a", "instruction": "b", "output": "c"}],
            "empty": [],
        }
        for name, listed in rows.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in listed))
        (folder / "pairs.csv").write_text("question,reply\na,b\n")
        (folder / "broken.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "a",\n')
        (folder / "notes.txt").write_text("Remember the milk.\n")
        (folder / "weights.bin").write_bytes(b"\x80\x04")
        for name, architecture in (("gpt2", "GPT2LMHeadModel"), ("bert", "BertForMaskedLM")):
            (folder / name).mkdir()
            config = {"architectures": [architecture], "model_type": name}
            (folder / name / "config.json").write_text(json.dumps(config))
        for name in ("empty_folder", "runs"):
            (folder / name).mkdir()
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def page(commands: list[Answered], calls: list[Answered], folder: Path) -> str:
    """The Markdown page."""

    def code(text: str) -> str:
        return f"`{text.replace(str(folder) + '/', '').replace('|', chr(92) + '|').replace('`', chr(39))}`"

    def table(rows: list[Answered], head: str) -> list[str]:
        lines = [f"| {code(row.call)} | {code(row.answer)} |" for row in rows]
        return [f"| {head} | answer |", "|---|---|", *lines, ""]

    return "\n".join(
        [
            "# 150 wrong calls, each answered in one line",
            "",
            f"{len(commands)} command lines and {len(calls)} Python calls, written from README, `--help` and",
            "the habits of transformers, TRL, lm-eval and LLaDA's scripts. Every command ends with status 2 and one",
            "line on standard error (after `maskwise: `); none gives a traceback, and none is accepted. Made by",
            "`python -m soak.wrong_calls`. We wrote them, and we know the code; calls typed by outside testers are in",
            "[reliability](reliability.md#calls-typed-by-outside-testers).",
            "",
            *table(commands, "command line"),
            *table(calls, "Python"),
        ]
    )


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    with working_folder() as folder:
        commands, calls = list(run_commands()), list(run_python())
        text = page(commands, calls, folder)
    PAGE.write_text(text, encoding="utf-8")
    for one in (*commands, *calls):
        if one.fault:
            print(f"{one.call}\n    {one.fault}\n    {one.answer[:300]}")
    faults = sum(bool(one.fault) for one in (*commands, *calls))
    print(f"{len(commands)} command lines, {len(calls)} Python calls, {faults} faults")


if __name__ == "__main__":
    main()
