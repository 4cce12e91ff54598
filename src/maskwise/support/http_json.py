"""JSON over HTTP with Python's own client: retries with backoff, one line for what does not pass."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from maskwise.support.errors import UserError

PASSING = (408, 425, 429, 500, 502, 503, 504)
LONGEST_PAUSE, LONGEST_REASON, MOST_BYTES = 60.0, 200, 2**24


@dataclass(frozen=True)
class Patience:
    """timeout: seconds for one answer. tries: at most. pause: seconds before the second, doubled for each after it."""

    timeout: float = 600.0
    tries: int = 6
    pause: float = 1.0


class StatusError(UserError):
    """The server is there and refuses this request, or fails on it."""


class _TryAgain(Exception):
    """What may pass; pause: seconds that the server asked for. kind: of the error where it does not pass."""

    def __init__(self, reason: str, pause: float = 0.0, kind: type[UserError] = UserError) -> None:
        super().__init__(reason)
        self.pause, self.kind = pause, kind


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A key is sent to the address that the user named, and to no other."""

    def redirect_request(self, *given: Any) -> None:
        return None


@dataclass(frozen=True, repr=False)
class JsonClient:
    """Requests to one server. The key goes into a header and nowhere else."""

    key: str | None = None
    patience: Patience = Patience()

    def request(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """The decoded answer to a POST of `body`, or to a GET. Busy, broken and silent servers are asked again."""
        for turn in range(self.patience.tries):
            try:
                return self._once(url, body)
            except _TryAgain as problem:
                reason, asked, kind = str(problem), problem.pause, problem.kind
            if turn + 1 < self.patience.tries:
                time.sleep(min(LONGEST_PAUSE, max(asked, self.patience.pause * 2**turn)))
        times = "" if self.patience.tries == 1 else f" ({self.patience.tries} times)"
        raise kind(f"{url} {reason}{times}: check --endpoint and the server's log")

    def _once(self, url: str, body: Mapping[str, Any] | None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(urllib.request.Request(url, data, headers), timeout=self.patience.timeout) as answer:
                content = self._read(answer)
        except urllib.error.HTTPError as problem:
            raise self._refused(url, problem) from None
        except TimeoutError:
            raise _TryAgain(f"did not answer within {self.patience.timeout:g} s") from None
        except (OSError, HTTPException) as problem:
            raise _TryAgain(f"cannot be reached ({self._short(getattr(problem, 'reason', problem))})") from None
        try:
            return json.loads(content)
        except ValueError:
            if content.lstrip()[:1] == b"<":
                raise UserError(f"{url} answered with a web page: give the address of a completions API") from None
            raise _TryAgain("answered with broken JSON") from None

    def _read(self, answer: Any) -> bytes:
        """Within the time allowed, also where the bytes come one by one."""
        content, end = b"", time.monotonic() + self.patience.timeout
        while part := answer.read1(2**16):
            content += part
            if time.monotonic() > end:
                raise TimeoutError
            if len(content) > MOST_BYTES:
                raise UserError(f"{answer.url} answered with more than {MOST_BYTES >> 20} MiB")
        return content

    def _refused(self, url: str, problem: urllib.error.HTTPError) -> Exception:
        try:
            said = self._short(_message(problem.read(MOST_BYTES)))
        except (OSError, HTTPException):
            said = ""
        reason = f"answered with status {problem.code}{f' ({said})' if said else ''}"
        if problem.code in PASSING:
            after = problem.headers.get("Retry-After", "")
            return _TryAgain(reason, float(after) if after.isdecimal() else 0.0, StatusError)
        if problem.code in (401, 403):
            return UserError(f"{url} {reason}: put the server's API key into the environment as {KEY_NAME}")
        return StatusError(f"{url} {reason}")

    def _short(self, text: Any) -> str:
        """On one line, without the key, which servers like to quote."""
        plain = " ".join(str(text).split())
        return (plain.replace(self.key, "***") if self.key else plain)[:LONGEST_REASON]


KEY_NAME = "MASKWISE_API_KEY"


def _message(content: bytes) -> str:
    """Of an error in OpenAI's form, in that of FastAPI, or the text itself."""
    text = content.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except ValueError:
        return "" if text.lstrip().startswith("<") else text
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return str(found)
