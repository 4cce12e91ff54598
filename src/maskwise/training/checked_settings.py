"""The settings of a run from a preset or the defaults, with changes; values that cannot work are refused."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from math import isfinite
from numbers import Real
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from maskwise.diffusion.objective import Objective
from maskwise.diffusion.objectives import OBJECTIVES, find_objective
from maskwise.diffusion.schedules import SCHEDULES
from maskwise.support.errors import UserError, flag
from maskwise.support.nearest import did_you_mean
from maskwise.training.training_settings import DECAYS, PRESETS, SharedSettings, TrainSettings, TuneSettings

ROWS = ("documents", "full")
OF_ADAPTERS = ("lora_rank", "lora_alpha", "lora_dropout", "targets")  # refused for --full
OF_OBJECTIVES = ("schedule", "block", "soft_share")  # refused where the objective does not take them

SettingValue = bool | int | float | str | Objective | None  # the value of one, by its name


def settings_from(preset: str, changes: Mapping[str, SettingValue]) -> TuneSettings:
    """A preset with the changes that are not None; one that would have no effect is refused."""
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}{did_you_mean(preset, PRESETS)}")
    return check(_changed(PRESETS[preset], changes))


def train_settings(changes: Mapping[str, SettingValue]) -> TrainSettings:
    """The defaults with the changes that are not None; a change that would have no effect is refused.
    The parameters of the objective are changes too, by their names."""
    objective = find_objective(changes.get("objective") or TrainSettings.objective)  # type: ignore[arg-type]
    own: dict[str, Any] = {name: changes[name] for name in objective.parameters if changes.get(name) is not None}
    others = {name: value for name, value in changes.items() if name not in objective.parameters}
    settings = _changed(TrainSettings(), others)
    settings = check_training(replace(settings, parameters={**settings.parameters, **own}))
    given = [name for name, value in others.items() if value is not None]
    rules = []
    for name in OF_OBJECTIVES:
        takers = [known.name for known in OBJECTIVES if name in known.takes]
        problem = f"{flag(name)} is of the objective {' and '.join(takers)}: leave it out for {objective}"
        rules.append((name in objective.takes or name not in given, problem))
    _check_rules(rules)
    return settings


def refuse_no_settings(given: object, kind: type) -> None:
    if given is not None and not isinstance(given, kind):
        raise UserError(f"settings must be a {kind.__name__}: give single settings as arguments, like steps=20")


S = TypeVar("S", bound=SharedSettings)


def _changed(settings: S, changes: Mapping[str, Any]) -> S:
    known = [field.name for field in fields(settings)]
    for name in changes:
        if name not in known:
            raise UserError(f"there is no setting {name!r}{did_you_mean(name, known)}")
    given = {name: value for name, value in changes.items() if value is not None}
    kinds = get_type_hints(type(settings))
    for name, value in given.items():
        taken = get_args(kinds[name]) if isinstance(kinds[name], UnionType) else (kinds[name],)
        if isinstance(value, str) and str not in taken and {int, float} & {*taken}:
            raise UserError(f"{flag(name)} is {value!r}: it must be a number")
    targets = given.get("targets")
    if targets in ([], (), ""):
        raise UserError(f"{flag('targets')} is empty, so no layer would get an adapter: leave it out, or name layers")
    if isinstance(targets, list | tuple):  # names of layers, as PEFT takes them
        given["targets"] = rf"(?:.*\.)?(?:{'|'.join(map(re.escape, map(str, targets)))})"
    changed = replace(settings, **given)
    if 0 < given.get("warmup", 0) >= changed.steps:
        raise UserError(f"--warmup {changed.warmup} is not shorter than --steps {changed.steps}: lower it")
    useless = [name for name in OF_ADAPTERS if changed.full and name in given]
    _check_rules([(False, f"{flag(name)} is of an adapter: leave it out for --full") for name in useless])
    return changed


def check(settings: TuneSettings) -> TuneSettings:
    """Refuse values that cannot work, each by its name; return the settings."""
    _check_numbers(settings)
    rules = [
        (settings.alpha + settings.beta > 0, "alpha and beta are both 0: nothing would be learnt"),
        (
            settings.max_masks > 0 or settings.alpha > 0,
            "with --max-masks 0 both views are the same text, so TV and KL are 0: give --alpha above 0, such as 0.1",
        ),
        (0 < settings.mask_low <= settings.mask_high < 1, "mask_low and mask_high must satisfy 0 < low <= high < 1"),
        (not (settings.anchored and settings.full), "anchored tuning needs an adapter: leave out full"),
        (not (settings.anchored and settings.one_branch), "anchored tuning has one branch: leave out one_branch"),
        (settings.held < 1, f"held is {settings.held}: it must be below 1"),
        (settings.anchored or not settings.held, "held pairs need --anchored: give both, or neither"),
        (settings.text_piece >= 4, f"text_piece is {settings.text_piece}: it must be at least 4"),
    ]
    _check_rules([*rules, *_run_rules(settings)])
    return settings


def check_training(settings: TrainSettings) -> TrainSettings:
    """`check` of the settings of `train`."""
    _check_numbers(settings)
    objective = find_objective(settings.objective)
    rules = [
        (value in known, f"unknown {name} {value!r}{did_you_mean(value, known)}")
        for name, value, known in (("schedule", settings.schedule, SCHEDULES), ("rows", settings.rows, ROWS))
    ]
    rules.append((0 <= settings.soft_share <= 1, f"soft_share is {settings.soft_share}: it must be 0 to 1"))
    for name, value in settings.parameters.items():
        unknown = f"the objective {objective} has no parameter {name!r}{did_you_mean(name, objective.parameters)}"
        number = isinstance(value, Real) and isfinite(value)
        rules.append((name in objective.parameters, unknown))
        rules.append((number, f"{name} of the objective {objective} is {value!r}: it must be a number"))
    _check_rules([*rules, *_run_rules(settings)])
    return settings


def _check_numbers(settings: SharedSettings) -> None:
    for one in fields(settings):
        least, value = one.metadata.get("at_least"), getattr(settings, one.name)
        if isinstance(value, float) and not isfinite(value):
            raise UserError(f"{flag(one.name)} is {value}: it must be a finite number")
        if least is not None and value is not None and value < least:
            wanted = f"be at least {least}" if least else "not be negative"
            raise UserError(f"{flag(one.name)} is {value}: it must {wanted}")


def _run_rules(settings: SharedSettings) -> list[tuple[bool, str]]:
    return [
        (settings.learning_rate > 0, f"the learning rate is {settings.learning_rate}: it must be positive"),
        (settings.clip > 0, f"--clip is {settings.clip}: it must be positive"),
        (settings.decay in DECAYS, f"unknown decay {settings.decay!r}: use {', '.join(DECAYS)}"),
        (settings.seed < 2**63, f"--seed is {settings.seed}: it must be below 2 to the 63rd"),
        (settings.keep >= 1, f"--keep is {settings.keep}: it must be at least 1"),
        (settings.many > settings.few, f"--many ({settings.many}) must be more masks than --few ({settings.few})"),
        (0 <= settings.lora_dropout < 1, f"--lora-dropout is {settings.lora_dropout}: it must be at least 0, below 1"),
        (_is_expression(settings.targets), f"targets {settings.targets!r} is not a regular expression: correct it"),
    ]


def _check_rules(rules: list[tuple[bool, str]]) -> None:
    for fine, problem in rules:
        if not fine:
            raise UserError(problem)


def _is_expression(pattern: str | None) -> bool:
    try:
        re.compile(pattern or "")
    except re.error:
        return False
    return True
