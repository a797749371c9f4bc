"""https servers on the loopback: one in Python that tells the name asked for by SNI, and a real nginx."""

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.scripted import Script, ScriptedSite, running

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


@dataclass
class SecureSite:
    """A scripted site by https; `names`: what each connection asked for by SNI, None for nothing."""

    site: ScriptedSite
    names: list[str | None] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.site.port


@contextmanager
def secure(script: Script, certificate: Any, address: str = "127.0.0.1") -> Iterator[SecureSite]:
    """A running https server with these answers; of the certificate `configure_cert` is called."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    site = ScriptedSite(script, (address, 0))
    told = SecureSite(site)
    context.sni_callback = lambda _socket, name, _context: told.names.append(name)
    # The handshake belongs on the connection's thread, where one that fails ends nothing else.
    site.socket = context.wrap_socket(site.socket, server_side=True, do_handshake_on_connect=False)
    with running(site):
        yield told


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def nginx(
    directory: Path, certificate: trustme.LeafCert, locations: str = "", listen: str = "ssl http2", also: str = ""
) -> Iterator[int]:
    """A running nginx of this test's own, with a log of requests in `directory`; its port. Skips without nginx."""
    if NGINX is None:
        pytest.skip("no nginx: HTTP/2 is not tested against a real server")
    port = free_port()
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
    (directory / "chain.pem").write_bytes(chain)
    (directory / "key.pem").write_bytes(certificate.private_key_pem.bytes())
    (directory / "nginx.conf").write_text(
        f"""
        daemon off; worker_processes 1; pid {directory}/nginx.pid; error_log {directory}/error.log;
        events {{ worker_connections 64; }}
        http {{
            log_format asked '$server_protocol $connection $status $host $request_uri';
            access_log {directory}/access.log asked;
            client_body_temp_path {directory}/b; proxy_temp_path {directory}/p; fastcgi_temp_path {directory}/f;
            uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
            server {{
                listen 127.0.0.1:{port} {listen};
                {also.format(port=port)}
                ssl_certificate {directory}/chain.pem; ssl_certificate_key {directory}/key.pem;
                default_type text/html;
                location = /robots.txt {{ return 404; }}
                location = / {{ return 200 '<a href=/a>a</a><a href=/b>b</a>'; }}
                {locations}
                location / {{ return 200 'page'; }}
            }}
        }}
        """
    )
    command = [NGINX, "-p", str(directory), "-c", str(directory / "nginx.conf")]
    with open(directory / "start.log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 20
        while server.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        else:
            pytest.fail(f"nginx did not start: {(directory / 'start.log').read_text()}")
        yield port
    finally:
        server.terminate()
        server.wait(20)


def requests_of(directory: Path) -> list[list[str]]:
    """What nginx was asked for: protocol, connection, status, host, path of each request."""
    return [line.split() for line in (directory / "access.log").read_text().splitlines()]
