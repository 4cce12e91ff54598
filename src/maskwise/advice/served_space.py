"""The settings that are searched of a model behind a server: fields of its completions request. Imports no torch."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from maskwise.support.errors import UserError

OWN_FIELDS = ("model", "prompt", "suffix", "max_tokens", "temperature", "seed", "stream", "n", "echo", "logprobs")


@dataclass(frozen=True)
class ServedSetting:
    """One way to ask a server. A field whose value is None is left out of the request: the server's default."""

    max_tokens: int
    temperature: float
    body: Mapping[str, Any]
    model: str = ""
    url: str = ""

    passes = 1  # requests per question: what a search is planned in

    @property
    def name(self) -> str:
        fields = {"temperature": f"{self.temperature:g}", "max_tokens": self.max_tokens, **self.body}
        return ", ".join(f"{name} {'default' if value is None else value}" for name, value in fields.items())

    @property
    def further(self) -> Mapping[str, Any]:
        """The fields of the request other than max_tokens and temperature."""
        return {name: value for name, value in self.body.items() if value is not None}

    @property
    def given(self) -> Mapping[str, Any]:
        return {"max_tokens": self.max_tokens, "temperature": self.temperature, **self.further}

    def command(self, model: str, adapter: str | None = None) -> str:
        body = json.dumps({"model": model, "prompt": "...", **self.given})
        return shlex.join(["curl", f"{self.url}/completions", "-H", "Content-Type: application/json", "-d", body])

    def python(self) -> str:
        further = f", extra_body={dict(self.further)!r}" if self.further else ""
        return (
            f"openai.OpenAI(base_url={self.url!r}).completions.create(model={self.model!r}, prompt=prompt, "
            f"max_tokens={self.max_tokens}, temperature={self.temperature:g}{further})"
        )

    def lm_eval(self, model: str, adapter: str | None = None) -> str:
        arguments = f"model={model},base_url={self.url}/completions,tokenized_requests=False"
        options = ["--model", "local-completions", "--model_args", arguments, "--gen_kwargs", json.dumps(self.given)]
        return shlex.join(options)


@dataclass(frozen=True)
class ServedSpace:
    """What is searched: every combination. The first value of each is the reference's."""

    max_tokens: tuple[int, ...] = (128, 64)
    temperatures: tuple[float, ...] = (0.0, 0.5, 1.0)
    body: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # further fields of the request

    variants = 0  # no caches to choose

    def settings(self, model: str, url: str) -> list[ServedSetting]:
        check_served(self)
        found = [
            ServedSetting(tokens, temperature, dict(zip(self.body, values, strict=True)), model, url)
            for tokens, temperature, *values in product(self.max_tokens, self.temperatures, *self.body.values())
        ]
        if len({one.name for one in found}) < max(2, len(found)):
            raise UserError("give two or more different --max-tokens, --temperatures or values of a --body field")
        return found

    def cached_variants(self, setting: ServedSetting) -> list[ServedSetting]:
        return []

    def not_tried(self) -> list[str]:
        return [
            "canvas, block, unmasking strategy, steps and cache, unless a field of the request sets them: they are the "
            "server's",
            "other fields of the server's request, guidance, tuning the model",
        ]


def check_served(space: ServedSpace) -> None:
    if any(tokens < 1 for tokens in space.max_tokens):
        raise UserError(f"max_tokens {', '.join(map(str, space.max_tokens))}: give whole numbers of 1 or more")
    if any(not 0 <= one <= 100 for one in space.temperatures):
        raise UserError(f"temperatures {', '.join(map(str, space.temperatures))}: give numbers of 0 or more")
    for name in space.body:
        if name in OWN_FIELDS:
            raise UserError(f"--body {name}: maskwise writes this field itself; give other fields of the request")


def with_values(space: ServedSpace, max_tokens: Any, temperatures: Any, body: Any) -> ServedSpace:
    """The space with what was given: lists, or texts with commas; body by name, or as texts NAME=VALUE,VALUE."""
    if max_tokens is not None:
        space = replace(space, max_tokens=tuple(_numbers(max_tokens, int, "max-tokens")))
    if temperatures is not None:
        space = replace(space, temperatures=tuple(_numbers(temperatures, float, "temperatures")))
    body = [body] if isinstance(body, str) else body
    pairs = list(body.items()) if isinstance(body, Mapping) else [text.partition("=")[::2] for text in body or ()]
    names = [name for name, _ in pairs]
    if not all(names) or len(set(names)) < len(names) or any(values in ("", []) for _, values in pairs):
        raise UserError(f"--body {body}: write each field once, as NAME=VALUE,VALUE, such as steps=8,16")
    return replace(space, body={name: _values(values) for name, values in pairs})


def _values(given: Any) -> list[Any]:
    """`8,16`, `true,null`, `low_confidence,random` or `{a: 1},{a: 2}` as values; a list as it is."""
    if not isinstance(given, str):
        return list(given) if isinstance(given, Sequence) else [given]
    import yaml

    try:
        found = list(yaml.safe_load(f"[{given}]"))
        json.dumps(found, allow_nan=False)
        return found
    except (yaml.YAMLError, TypeError, ValueError):
        raise UserError(f"{given!r} is no list of values: write them as 8,16") from None


def _numbers(given: Any, kind: type, option: str) -> list[Any]:
    found = _values(given)
    if any(isinstance(value, bool) or not isinstance(value, int | kind) for value in found):
        raise UserError(f"--{option} {given}: give {'whole ' * (kind is int)}numbers, separated by commas")
    return list(map(kind, found))
