"""A model that a server offers over the OpenAI completions protocol (SGLang, vLLM, LMDeploy, `transformers serve`).

Prompts are sent as text. Canvas, steps and strategy are the server's: they are recorded as it states them, else as the
user does. An API key is read from the environment (MASKWISE_API_KEY) and written nowhere.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from maskwise.models.text_model import UNKNOWN_WINDOW, Continuation, TextModel
from maskwise.records.manifest import ModelDescription, ServedSettings
from maskwise.support.errors import UserError
from maskwise.support.http_json import KEY_NAME, JsonClient, Patience, StatusError
from maskwise.support.nearest import did_you_mean

# What a server calls the settings that it states, in its list of models or its own description.
STATED = {
    "canvas": ("dllm_block_length", "dllm_block_size"),
    "steps": ("dllm_denoising_steps",),
    "strategy": ("dllm_unmasking_strategy", "dllm_algorithm"),
}
WINDOWS = ("max_model_len", "context_length")
NONE: Mapping[str, Any] = {}
UNKNOWN_DTYPE = "dtype not stated"
TRIAL = "The days of the week are Monday, Tuesday,"


@dataclass(frozen=True)
class UserStated:
    """What the user says of a server that does not say it itself."""

    canvas: int | None = None
    steps: int | None = None
    strategy: str | None = None


def base_of(url: str) -> str:
    """`http://host:8000/v1` of any address of that server; refuses what is none, and secrets in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"--endpoint takes an address such as http://localhost:8000/v1, not {url!r}")
    if parts.username or parts.password or parts.query:
        raise UserError(f"--endpoint: put the API key into the environment as {KEY_NAME}, not into the address")
    path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}/v1"


class Endpoint(TextModel):
    """One model of a server. stated: what the user says of its decoding; `requests` are sent at a time."""

    def __init__(
        self,
        url: str,
        name: str | None = None,
        requests: int = 4,
        stated: UserStated | None = None,
        patience: Patience | None = None,
    ) -> None:
        super().__init__()
        if requests < 1:
            raise UserError(f"--concurrency must be at least 1, not {requests}")
        self.url, self.requests = base_of(url), requests
        self.client = JsonClient(os.environ.get(KEY_NAME), patience or Patience())
        listed = self._listed()
        self.name = name or _only_one(self.url, list(listed))
        own = self._optional("/server_info") or self._optional("/get_server_info")
        said = {**own, **listed.get(self.name, {})}
        self.settings = _settings(said, stated or UserStated())
        self.canvas = self.settings.canvas
        window = _first(said, WINDOWS)
        self.stated_window = window if isinstance(window, int) and window > 0 else None
        self.window = self.stated_window or UNKNOWN_WINDOW
        self.changed_prompt, self.shows_tokenizer = "", True

    def write(self, before: str, after: str, tokens: int, temperature: float, seed: int) -> Continuation:
        text, finish, usage = self.complete(before, after, tokens, temperature, seed)
        counted = usage.get("completion_tokens")
        return Continuation(text, finish == "stop", counted if isinstance(counted, int) else None)

    @cached_property
    def infills(self) -> bool:
        """Whether `suffix` reaches the model: the server counts it as a part of the prompt. Some ignore or refuse it,
        and some only append it to the answer."""
        try:
            lengths = [self.complete(TRIAL, after, 1, 0.0, 0)[2].get("prompt_tokens") for after in ("", f" {TRIAL}")]
        except UserError:
            self.complete(TRIAL, "", 1, 0.0, 0)  # whether it is the suffix that is refused
            return False
        alone, both = (length if isinstance(length, int) else 0 for length in lengths)
        return both > alone > 0

    def description(self) -> ModelDescription:
        served = self.settings.changed(infills=self.infills)
        unknown: Any = {"parameters": None, "mask_id": None, "shift": False, "causal": None, "dtype": UNKNOWN_DTYPE}
        return ModelDescription(name=self.name, kind=self.kind, window=self.stated_window, served=served, **unknown)

    def notes(self) -> list[str]:
        by_whom = self.settings.stated_by
        known = [f"{name} {getattr(self.settings, name)} (stated by the {whom})" for name, whom in by_whom.items()]
        unknown = [name for name in STATED if name not in by_whom]
        not_known = f"; {', '.join(unknown)} not stated" if unknown else ""
        return [
            f"answers are text from {self.url}; decoding is the server's: {', '.join(known) or 'nothing'}{not_known}",
            *([self.changed_prompt] if self.changed_prompt else []),
        ]

    def check_sequence(self, ids: Sequence[int], what: str, new: int = 0) -> None:
        """Where the server shows its tokenizer: the prompt fits, with so many new tokens, and comes back from it as it
        was sent."""
        if not self.shows_tokenizer:
            return
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        found = self._optional("/tokenize", {"model": self.name, "prompt": text, "add_special_tokens": False})
        tokens = found.get("tokens")
        if not isinstance(tokens, list):
            self.shows_tokenizer = False
            return
        if self.stated_window is not None and len(tokens) + new > self.stated_window:
            remedy = "give fewer --max-tokens" if new else "use --quick (shorter prompts)"
            raise UserError(
                f"{what} has {len(tokens)} tokens{f' before {new} new ones' * bool(new)}, the context length of "
                f"{self.name} is {self.stated_window}; {remedy}"
            )
        back = self._optional("/detokenize", {"model": self.name, "tokens": tokens})
        again = back.get("prompt", back.get("text"))
        if isinstance(again, str) and again.strip() != text.strip():
            self.changed_prompt = f"the server's tokenizer changes prompts: {what} does not come back as it was sent"

    def check_fields(self, names: Collection[str]) -> None:
        """Refuses fields that the server says its requests do not have, as most servers ignore them in silence."""
        known = _request_fields(self._optional("/openapi.json")) if names else ()
        for name in names if known else ():
            if name not in known:
                raise UserError(f"{self.url} states no field {name!r} of a completion{did_you_mean(name, known)}")

    def complete(
        self, before: str, after: str, tokens: int, temperature: float, seed: int, further: Mapping[str, Any] = NONE
    ) -> tuple[str, Any, Mapping[str, Any]]:
        """The text, the finish reason and the usage. further: other fields of the request."""
        body = {"model": self.name, "prompt": before, "max_tokens": tokens, "temperature": temperature, "seed": seed}
        body |= further
        answer = self.client.request(f"{self.url}/completions", body | ({"suffix": after} if after else {}))
        try:
            choice = answer["choices"][0]
            text, usage = choice["text"], answer.get("usage") or {}
            if isinstance(text, str) and isinstance(usage, dict):
                return text, choice.get("finish_reason"), usage
        except (LookupError, TypeError, AttributeError):
            pass
        raise UserError(f"{self.url}/completions answered without a text: it does not speak the completions protocol")

    def _listed(self) -> dict[str, Mapping[str, Any]]:
        """What the server says of each of its models, by name; a dead one is found out here, at once. Some have no
        such list: `transformers serve` fails on it where no hub cache exists."""
        try:
            found = self._once.request(f"{self.url}/models")
        except StatusError:
            return {}
        listed = found.get("data") if isinstance(found, dict) else None
        return {one["id"]: one for one in listed or [] if isinstance(one, dict) and isinstance(one.get("id"), str)}

    @property
    def _once(self) -> JsonClient:
        """A client that does not try again."""
        return replace(self.client, patience=replace(self.client.patience, tries=1))

    def _optional(self, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """What only some servers offer."""
        try:
            found = self._once.request(self.url.removesuffix("/v1") + path, body)
        except UserError:
            return {}
        return found if isinstance(found, dict) else {}


def _request_fields(description: Mapping[str, Any]) -> tuple[str, ...]:
    """Of a completion, by the server's OpenAPI description; empty where it is silent or says that any field may do."""
    try:
        path = next(path for path in description["paths"] if path.endswith("/completions") and "/chat/" not in path)
        schema = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        if "$ref" in schema:
            schema = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return () if schema.get("additionalProperties") else tuple(schema["properties"])
    except (LookupError, TypeError, AttributeError, StopIteration):
        return ()


def _only_one(url: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    listed = f": {', '.join(names[:8])}" if names else ""
    raise UserError(f"{url} serves {len(names) or 'no listed'} models{listed}; name one with --model")


def _first(said: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((said[name] for name in names if said.get(name) is not None), None)


def _settings(said: Mapping[str, Any], stated: UserStated) -> ServedSettings:
    """The server's word counts; the user's is asked for where there is none."""
    values: dict[str, Any] = {}
    by_whom = {}
    for name, keys in STATED.items():
        by_server, by_user = _first(said, keys), getattr(stated, name)
        if by_server is not None and by_user is not None and by_server != by_user:
            raise UserError(f"the server states {name} {by_server}, not {by_user}: leave --{name} out")
        if by_server is not None or by_user is not None:
            values[name] = by_user if by_server is None else by_server
            by_whom[name] = "user" if by_server is None else "server"
    return ServedSettings(**values, stated_by=by_whom)
