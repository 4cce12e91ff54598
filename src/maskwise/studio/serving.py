"""Serving the studio to this machine alone.

Imports nothing heavy: a port in use and a missing extra are said at once.
"""

import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from importlib.util import find_spec
from typing import Any

from maskwise.support.errors import UserError

LOOPBACK = "127.0.0.1"
MOST_BODY = 512 << 10  # bytes of a request: three texts of the largest size, escaped, and the controls
MOST_WAITING, MOST_SESSIONS = 64, 64
# What the page needs of Gradio's routes; uploads, files, proxies and whatever comes with a later version stay shut.
PATHS = ("/assets/", "/static/", "/svelte/", "/gradio_api/queue/", "/gradio_api/heartbeat/")
API = ("info", "startup-events", "app_id", "theme.css", "cancel", "reset", "login_check")
EXACT_PATHS = {"/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt"}
EXACT_PATHS |= {f"/gradio_api/{name}" for name in API}
# Nothing is fetched from elsewhere, whatever a page or a text says.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; frame-ancestors 'none'; form-action 'none'; "
    "base-uri 'self'; object-src 'none'"
)
HEADERS = [(b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff")]
HEADERS += [(b"referrer-policy", b"no-referrer"), (b"cross-origin-resource-policy", b"same-origin")]

Message = MutableMapping[str, Any]  # also the scope of a request
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def require_gradio() -> None:
    if find_spec("gradio") is None:
        raise UserError("the studio needs Gradio: pip install '.[studio]' in a clone")


def claim_port(port: int) -> socket.socket:
    """Binds this port on the loopback address; 0 is any free one."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((LOOPBACK, port))
        held.listen(128)
    except (OSError, OverflowError) as problem:
        held.close()
        reason = getattr(problem, "strerror", None) or str(problem)
        raise UserError(f"port {port} cannot be used ({reason}): name another one with --port") from None
    return held


class Guard:
    """ASGI middleware: admits requests from this machine's browser to this server, of bounded size.

    A page from elsewhere can send requests to a loopback port: by its own name for it (DNS rebinding), which the Host
    header shows, or directly, which the Origin header shows.
    """

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        ends = ("", ":80") if port == 80 else (f":{port}",)  # browsers leave the usual port out
        self.hosts = {name + end for name in (LOOPBACK, "localhost") for end in ends}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        refusal = 404 if scope["type"] != "http" else self._refusal(scope)
        if refusal:
            return await _refuse(scope, send, refusal)
        left = MOST_BODY

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        await self.app(scope, bounded, guarded)

    def _refusal(self, scope: Message) -> int:
        """HTTP status of a refused request, 0 for an admitted one."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if headers.get("host") not in self.hosts:
            return 403
        if "origin" in headers and headers["origin"] not in self.origins:
            return 403
        if scope["method"] != "GET" and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403
        path = scope["path"]
        if scope["method"] not in ("GET", "HEAD", "POST") or not (path in EXACT_PATHS or path.startswith(PATHS)):
            return 404
        length = headers.get("content-length", "0")
        return 0 if length.isdecimal() and int(length) <= MOST_BODY else 413


async def _refuse(scope: Message, send: Send, status: int) -> None:
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": 1008})
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), *HEADERS]})
    await send({"type": "http.response.body", "body": b""})


def guarded_app(models: Sequence[str], port: int, dtype: str = "auto", device: str | None = None) -> Guard:
    """The guarded application; models are opened when a page asks them."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    import gradio as gr
    from fastapi import FastAPI

    from maskwise.studio.app import Models, build_app
    from maskwise.studio.views import studio_style

    app = build_app(Models(models, dtype, device)).queue(max_size=MOST_WAITING, api_open=False)
    app.state_session_capacity = MOST_SESSIONS
    # Fonts of the system: Gradio's themes would ask for web fonts.
    fonts = ["system-ui", "-apple-system", "Segoe UI", "DejaVu Sans", "sans-serif"]
    theme = gr.themes.Base(primary_hue="blue", font=fonts, font_mono=["ui-monospace", "DejaVu Sans Mono", "monospace"])
    off: Any = dict.fromkeys(("ssr_mode", "show_error", "mcp_server", "pwa", "enable_monitoring"), False)
    style = f"<style>{studio_style()}</style>"
    bare = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    mounted = gr.mount_gradio_app(
        bare, app, "/", LOOPBACK, port, [], False, max_file_size=1, theme=theme, head=style, **off
    )
    return Guard(mounted, port)


def serve(held: socket.socket, app: Guard) -> None:
    """Serves until Ctrl-C."""
    import uvicorn

    # Pages that are open when it ends are cut off; at a lower level uvicorn prints a traceback for each.
    limits: Any = {"limit_concurrency": 256, "timeout_keep_alive": 5, "timeout_graceful_shutdown": 1}
    quiet: Any = {"log_level": "critical", "access_log": False, "server_header": False}
    uvicorn.Server(uvicorn.Config(app, ws="none", **quiet, **limits)).run(sockets=[held])
