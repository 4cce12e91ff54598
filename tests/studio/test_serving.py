"""Who is let in: this machine's browser, by the right name, from the server's own page, in bounded size."""

import asyncio
import sys

import pytest
from typer.testing import CliRunner

from maskwise.cli import app as command_line
from maskwise.studio.serving import MOST_BODY, Guard, claim_port
from maskwise.support.errors import UserError

HOST = "127.0.0.1:7860"
OWN = {"host": HOST, "origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}


def answer(method="GET", path="/", headers=OWN, body=(b"",), kind="http"):
    """The status that a request gets, with what the application behind the guard was given of it."""
    read: list[bytes] = []
    sent: list[dict] = []
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]

    async def behind(scope, receive, send):
        for _ in body:
            read.append((await receive()).get("body", None))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(Guard(behind, 7860)(scope, receive, send))
    return sent[0], read


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"headers": {"host": "localhost:7860"}}, 200),
        ({"headers": {}}, 403),
        ({"headers": {"host": "studio.example:7860"}}, 403),  # a name that was made to lead here
        ({"headers": {"host": "127.0.0.1:80"}}, 403),
        ({"headers": {"host": HOST, "origin": "http://studio.example"}}, 403),
        ({"headers": {"host": HOST, "origin": "null"}}, 403),
        ({"headers": {"host": HOST, "origin": "http://127.0.0.1:8000"}}, 403),
        ({"method": "POST", "headers": {"host": HOST, "sec-fetch-site": "cross-site"}}, 403),
        ({"method": "POST", "path": "/gradio_api/queue/join"}, 200),
        ({"method": "POST", "path": "/gradio_api/upload"}, 404),
        ({"path": "/gradio_api/file=/etc/passwd"}, 404),
        ({"path": "/gradio_api/proxy=http://example.com"}, 404),
        ({"method": "PUT"}, 404),
        ({"headers": OWN | {"content-length": str(MOST_BODY + 1)}}, 413),
        ({"headers": OWN | {"content-length": "-1"}}, 413),
    ],
)
def test_only_the_servers_own_page_is_let_in(change, status):
    start, read = answer(**change)
    assert start["status"] == status and (read == [b""]) == (status == 200)
    sent = dict(start["headers"])
    assert b"default-src 'self'" in sent[b"content-security-policy"] and sent[b"x-content-type-options"] == b"nosniff"


def test_a_body_of_unknown_length_is_cut_off_where_it_is_too_large():
    _, read = answer("POST", "/gradio_api/queue/join", body=[b"x" * MOST_BODY, b"x"])
    assert read == [b"x" * MOST_BODY, None]


def test_sockets_of_the_web_are_closed():
    assert answer(kind="websocket")[0]["type"] == "websocket.close"


def test_a_port_in_use_is_one_line():
    with claim_port(0) as held:
        address, port = held.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(UserError, match=f"port {port} cannot be used"):
            claim_port(port)


@pytest.mark.parametrize(
    ("given", "present", "said"),
    [
        ([], False, "pip install '.[studio]' in a clone"),
        (["tiny-lada"], True, "tiny-llada"),
        (["--port", "70000"], True, "--port"),
        (["--dtype", "float23"], True, "float32"),
    ],
)
def test_what_is_wrong_is_said_before_anything_heavy_is_loaded(monkeypatch, given, present, said):
    """Whether Gradio is there or not, here: an entry in sys.modules says so to whoever looks."""
    stub = type(sys)("gradio")
    stub.__spec__ = pytest.__spec__
    monkeypatch.setitem(sys.modules, "gradio", stub if present else None)
    done = CliRunner().invoke(command_line, ["studio", *given], prog_name="maskwise")
    assert done.exit_code == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("maskwise: ") and said in line
