"""A web server whose answers a test writes down: path -> answer, or a function of the request.

One server answers for any number of names; the log tells the Host header of each request.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


@dataclass
class Answer:
    """An HTTP answer; the body is HTML unless the headers say otherwise."""

    body: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    missing: int = 0  # bytes that Content-Length promises and that do not come


class Asked(NamedTuple):
    """A request as it arrived (time.monotonic())."""

    time: float
    host: str
    path: str
    headers: dict[str, str]


Script = Mapping[str, Answer | Callable[[Asked], Answer]]


def page(*links: str, head: str = "") -> Answer:
    """A page with these links."""
    return Answer(
        f"<html><head>{head}</head><body>{''.join(f'<a href={link!r}>x</a>' for link in links)}</body></html>"
    )


def redirect(where: str, status: int = 302) -> Answer:
    """A redirect."""
    return Answer(status=status, headers={"Location": where})


HANG_UP = Answer(status=0)  # the connection is closed instead


class ScriptedSite(ThreadingHTTPServer):
    """The server. Unknown paths answer 404, so robots.txt allows everything unless it is scripted."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, script: Script, at: tuple[str, int]) -> None:
        self.script = dict(script)
        self.asked: list[Asked] = []
        self.connections = 0
        if ":" in at[0]:
            self.address_family = socket.AF_INET6
        super().__init__(at, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that ends a connection early is no error here."""

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.port}"

    def paths(self) -> list[str]:
        """The paths that were asked for, robots.txt left out."""
        return [asked.path for asked in self.asked if asked.path != "/robots.txt"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ScriptedSite

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(time.monotonic(), headers.get("host", ""), self.path, headers)
        self.server.asked.append(asked)
        answer = self.server.script.get(self.path, Answer("not here", 404))
        if not isinstance(answer, Answer):
            answer = answer(asked)
        if answer is HANG_UP:
            self.close_connection = True
            return
        body = b"" if answer.status == 304 else answer.body.encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "text/html; charset=utf-8", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) + answer.missing))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.close_connection or answer.missing > 0

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def scripted(script: Script, at: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[ScriptedSite]:
    """A running server with these answers."""
    with running(ScriptedSite(script, at)) as site:
        yield site


@contextmanager
def running(site: ScriptedSite) -> Iterator[ScriptedSite]:
    """A site while it answers."""
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        thread.join()
        site.server_close()
