"""The fetch loop alone: requests by libcurl without a visit, for tests of what goes over the wire."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from crawl.fetch.authorities import CA_FILE
from crawl.fetch.guard import Guard
from crawl.fetch.loop import FetchLoop
from crawl.fetch.response import Request, Response


class Asking:
    """Sends requests one after another."""

    def __init__(self, loop: FetchLoop) -> None:
        self.loop = loop

    def __call__(self, url: str, address: str = "127.0.0.1", **more: Any) -> Response:
        """The response to a GET of a URL at an address."""
        headers = more.pop("headers", ["User-Agent: trawl-tests"])
        request = Request(url, urlsplit(url).hostname or "", address, headers, more.pop("max_bytes", 1 << 20), **more)
        answered = threading.Event()
        responses: list[Response] = []

        def done(response: Response) -> None:
            responses.append(response)
            answered.set()

        self.loop.submit(lambda: self.loop.fetch(request, done))
        assert answered.wait(30), f"no answer of {url}"
        return responses[0]


@contextmanager
def asking(ca_file: str = CA_FILE, guard: Guard | None = None) -> Iterator[Asking]:
    """A running loop that may dial the loopback, unless a guard says otherwise."""
    loop = FetchLoop(guard or Guard(["127.0.0.0/8", "::1"]), ca_file)
    loop.start()
    try:
        yield Asking(loop)
    finally:
        loop.close()
