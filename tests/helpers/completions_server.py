"""A small server that speaks the OpenAI completions protocol, and a masked diffusion model behind it."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from maskwise.decoding.checks import end_tokens
from maskwise.decoding.generate import generate
from maskwise.models.model import Model

Reply = Callable[[str, dict[str, Any]], tuple[int, Any]]  # (path, body) -> (status, a value or bytes)


@dataclass
class Served:
    """url: its address. bodies: of every request for a completion. headers: of every request."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def questions(self) -> list[tuple[str, Any]]:
        """What was asked, without the trial of the suffix."""
        return [(b["prompt"], b.get("suffix")) for b in self.bodies if not b["prompt"].startswith("The days of")]


@contextmanager
def serving(reply: Reply, port: int = 0) -> Iterator[Served]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self, body: dict[str, Any]) -> None:
            served.headers.append(dict(self.headers))
            if self.path.endswith("/completions"):
                served.bodies.append(body)
            status, value = reply(self.path, body)
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            if status == 0:  # dies in the middle of the answer
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if status == 429:
                self.send_header("Retry-After", "0")
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    served = Served(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


def completion(text: str, prompt_tokens: int = 1, tokens: int = 1, finish: str = "length") -> dict[str, Any]:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}
    return {"choices": [{"text": text, "finish_reason": finish}], "usage": usage}


def listed(name: str, **stated: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", **stated}]}


FIELDS = ("model", "prompt", "suffix", "max_tokens", "temperature", "seed", "steps")


def described(fields: Sequence[str]) -> dict[str, Any]:
    """An OpenAPI description, as FastAPI writes it, of a server whose completions have these fields."""
    schema = {"$ref": "#/components/schemas/CompletionRequest"}
    post = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    properties = {name: {} for name in fields}
    return {
        "paths": {"/v1/chat/completions": {"post": {}}, "/v1/completions": {"post": post}},
        "components": {"schemas": {"CompletionRequest": {"properties": properties}}},
    }


def diffusion(model: Model, tokens_per_step: int | None = None, **stated: Any) -> Reply:
    """Fills `max_tokens` masks between `prompt` and `suffix`, so many in each step (None: all in one), or in as
    many steps as the request says."""
    lock = threading.Lock()

    def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path.endswith("/models"):
            return 200, listed(model.name, max_model_len=model.window, **stated)
        if path == "/tokenize":
            return 200, {"tokens": model.tokenizer(body["prompt"], add_special_tokens=False)["input_ids"]}
        if path == "/detokenize":
            return 200, {"prompt": model.tokenizer.decode(body["tokens"])}
        if path == "/openapi.json":
            return 200, described(FIELDS)
        if not path.endswith("/completions"):
            return 404, {"error": {"message": "no such page"}}
        before = model.tokenizer(body["prompt"])["input_ids"]
        after = model.tokenizer(body.get("suffix", ""), add_special_tokens=False)["input_ids"]
        masks = [model.mask_id] * body["max_tokens"]
        steps = body.get("steps") or max(1, len(masks) // (tokens_per_step or len(masks)))
        with lock:  # one model, many threads
            canvas, chance = [*before, *masks, *after], torch.Generator().manual_seed(body["seed"])
            hot = {"temperature": body["temperature"], "generator": chance} if body["temperature"] else {}
            (made,) = generate(model, [canvas], 0, steps=steps, **hot)
        ends = [place for place, token in enumerate(made.ids) if token in end_tokens(model)]
        kept = made.ids[: ends[0]] if ends else made.ids
        finish = "stop" if ends else "length"
        return 200, completion(model.tokenizer.decode(kept), len(before) + len(after), len(kept), finish)

    return reply
