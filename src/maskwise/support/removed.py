"""What 0.3 removed: a call with one of these names is answered by one line with the replacement."""

DEVICES = "several GPUs: --device-map auto"
REMOVED: dict[str, dict[str, str]] = {
    "command": {
        "cures": "maskwise diagnose MODEL --probes mitigations",
        "reproduce": "lm_eval --model maskwise",
        "run-card": "maskwise report DIR --card",
        "sweep": "one maskwise diagnose a model, as jobs of your own; maskwise report DIR... makes their table",
    },
    "option": {
        "--body": "",
        "--concurrency": "",
        "--endpoint": "",
        "--max-memory": DEVICES,
        "--points": "--questions",
        "--power": "--dry-run",
        "--precision": "--questions for more questions, --dry-run for what they can show",
        "--runs": "maskwise report DIR...",
        "--teacher": "",
        "--temperatures": "",
        "--tensor-parallel": DEVICES,
        "--vote": "",
        "--widen": "",
        "--widen-share": "",
    },
    "option of diagnose": dict.fromkeys(("--canvas", "--model", "--steps", "--strategy"), ""),
    "option of advise": dict.fromkeys(("--max-tokens", "--model", "--cost", "--templates"), "")
    | dict.fromkeys(("--blocks", "--caches", "--canvases", "--rules", "--steps"), "--settings")
    | {"--budget": "--questions", "--judge": "--function with mw.score"},
    "option of report": dict.fromkeys(("--reverse", "--sort"), "the runs are in the order of their folders"),
    "probe": {
        "attention": "attribution measures it",
        "calibration": "contrast",
        "few-steps": "steps measures it",
        "generation-length": "own-task measures it",
        "hotpotqa": "datasets measures it",
        "labelled-text": "datasets measures it",
        "likelihood-masks": "own-task measures it",
        "location-masks": "location measures it",
        "mask-attribution": "attribution measures it",
        "numerics": "",
        "question-position": "location measures it",
        "room": "the accuracy at the baseline says whether a task can show a loss; --select-tasks with --paper",
        "self-correction": "confidence says how often a token of that probability is right",
        "shots-masks": "mask-count measures it",
        "unmasking": "steps measures it",
        "unfamiliar": "--words unfamiliar-1",
    },
    "family": {
        "DiffusionGemmaForBlockDiffusion": "it denoises from uniform noise, without masks",
        "NemotronLabsDiffusionModel": "our class was never compared with its original code",
        "LLaDA2.2": "its experts have a capacity, which our class does not know",
    },
    "weights": {"int4": "--weights fp8"},
    "model": {"tiny-llada+ma": "tiny-llada+distracted+ma"},
    "name": {"cures": "the probe mitigations of maskwise.diagnose", "sweep": "maskwise.diagnose for each model"},
}


def removed(kind: str, name: str) -> str | None:
    """`the command sweep was removed in 0.3: ...`; None for a name that was not removed."""
    if name not in REMOVED.get(kind, ()):
        return None
    instead = REMOVED[kind][name]
    return f"the {kind} {name} was removed in 0.3{f': {instead}' if instead else ''}"
