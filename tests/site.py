"""A static web site on 127.0.0.1 for tests: http.server with keep-alive, an access log and a latency.

with serve(folder) as site:
    ...crawl site.url...
    assert site.paths() == ["/robots.txt", "/index.html"]
"""

import argparse
import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple


class Access(NamedTuple):
    time: float  # time.monotonic() at the arrival of the request
    path: str  # as asked for, with the query
    status: int
    headers: dict[str, str]  # of the request; names in lower case


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes; with Nagle's algorithm the body waits 40 ms for the peer's ACK.
    disable_nagle_algorithm = True
    server: "Site"
    arrived = 0.0

    def parse_request(self) -> bool:
        self.arrived = time.monotonic()
        is_good = super().parse_request()
        if is_good and self.server.latency:
            time.sleep(self.server.latency)
        return is_good

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        headers = {name.lower(): value for name, value in self.headers.items()} if self.headers else {}
        self.server.log.append(Access(self.arrived, self.path, int(code), headers))

    def log_message(self, *args: Any) -> None:
        pass


class Site(ThreadingHTTPServer):
    """The server; `log` grows by one Access per request, in the order in which they are answered."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path, latency: float = 0, port: int = 0) -> None:
        self.latency = latency  # seconds before each answer
        self.log: list[Access] = []
        super().__init__(("127.0.0.1", port), functools.partial(Handler, directory=str(folder)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def paths(self) -> list[str]:
        return [access.path for access in self.log]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away is no news


@contextlib.contextmanager
def serve(folder: Path, latency: float = 0) -> Iterator[Site]:
    """A running site over `folder`, which may grow while it runs."""
    with Site(folder, latency) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--latency", type=float, default=0, help="seconds before each answer")
    options = parser.parse_args()
    with (
        Site(options.folder, options.latency, options.port) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        print(server.url, flush=True)
        server.serve_forever()
