"""Sends the answers of the table, one request at a time on a connection."""

import contextlib
import socket
import socketserver
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.faults.answers import Answer, answer
from tests.faults.table import FAULTS, ROBOTS

TLS_HELLO = b"\x16\x03"  # no TLS here, and a client that waits for it is not left waiting


def index() -> bytes:
    """A page that links to every fault."""
    links = "".join(f"<li><a href='/fault/{name}'>{name}</a> {fault.what}</li>\n" for name, fault in FAULTS.items())
    return answer(body=f"<!DOCTYPE html><title>faults</title><ul>\n{links}</ul>\n".encode())


class Handler(socketserver.BaseRequestHandler):
    """Answers, and closes unless the answer itself keeps the connection open."""

    server: "FaultServer"

    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.settimeout(30)  # seconds
        while request := self._request(connection):
            path = request.split(b" ", 2)[1].decode("latin-1")
            host = request.lower().partition(b"\r\nhost:")[2].partition(b"\r\n")[0].strip().decode("latin-1")
            self.server.asked[host.partition(":")[0], path] += 1
            reply = self.server.reply(host.partition(".")[0], path.partition("?")[0])
            if callable(reply):
                if not reply(connection, path):
                    return
                continue
            connection.sendall(reply)
            # Closed at once, unread bytes of the client would turn the end into an RST.
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(1)
            connection.recv(65536)
            return

    @staticmethod
    def _request(connection: socket.socket) -> bytes:
        request = b""
        while b"\r\n\r\n" not in request:
            received = connection.recv(65536)
            if not received or received.startswith(TLS_HELLO):
                return b""
            request += received
        return request


class FaultServer(socketserver.ThreadingTCPServer):
    """The server, by https with a certificate; `asked` counts the requests by (host name, path with query)."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, port: int = 0, certificate: Any = None) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self.scheme = "https" if certificate else "http"
        super().__init__(("127.0.0.1", port), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            # Handshakes belong on the connections' threads. No connection ends with TLS's goodbye.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def reply(self, host: str, path: str) -> Answer:
        """The answer for the first label of a host name and a path without query."""
        if path == "/":
            return index()
        if path == "/robots.txt":
            return ROBOTS.get(host, answer(status="404 Not Found", body=b""))
        if path.startswith("/fault/"):
            name = path.removeprefix("/fault/").partition("/")[0]
            return FAULTS[name].answer if name in FAULTS else answer(status="404 Not Found", body=b"no such name\n")
        return answer()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/"

    def shutdown_request(self, request: Any) -> None:
        request.close()  # no shutdown() first: it would send a FIN where an RST is meant

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that give up are the point


@contextlib.contextmanager
def serve(server: FaultServer | None = None) -> Iterator[FaultServer]:
    """A running fault server on a port of its own, or another server of the kind while it answers."""
    with server or FaultServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()
