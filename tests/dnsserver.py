"""A name server for tests, by UDP and TCP on one port of the loopback; it answers as it is told, name by name."""

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

A, NS, CNAME, AAAA = 1, 2, 5, 28
NXDOMAIN, SERVFAIL, REFUSED = 3, 2, 5


@dataclass(frozen=True)
class Says:
    """What is answered for a name. Without addresses: that it has none."""

    addresses: tuple[str, ...] = ()
    ttl: int = 300
    code: int = 0
    alias: str = ""  # a CNAME, answered together with what it leads to
    silent: bool = False
    seconds: float = 0.0  # how long it takes
    only_tcp: bool = False  # by UDP it says that the answer is too long


@dataclass
class NameServer:
    """A running server. `asked` counts the questions by name, those for A records only."""

    names: dict[str, Says]
    port: int = 0
    silent: bool = False  # to everybody
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def address(self) -> str:
        """As TRAWL_NAME_SERVERS takes it."""
        return f"127.0.0.1:{self.port}"

    def answer(self, query: bytes, tcp: bool) -> bytes | None:
        """The answer to a query; None: there is none."""
        number, question, name, kind = _parsed(query)
        if kind == A:
            self.asked[name] += 1
        if self.silent:
            return None
        if kind == NS:
            return struct.pack("!6H", number, 0x8180, 1, 0, 0, 0) + question
        says = self.names.get(name, Says(code=NXDOMAIN))
        if says.silent:
            return None
        time.sleep(says.seconds)
        if says.only_tcp and not tcp:
            return struct.pack("!6H", number, 0x8380, 1, 0, 0, 0) + question
        records = []
        owner = b"\xc0\x0c"
        if says.alias:
            target = _wire(says.alias)
            records.append(owner + struct.pack("!HHIH", CNAME, 1, says.ttl, len(target)) + target)
            owner = target
        version = 4 if kind == A else 6
        for address in map(ip_address, says.addresses):
            if address.version == version:
                packed = address.packed
                records.append(owner + struct.pack("!HHIH", kind, 1, says.ttl, len(packed)) + packed)
        head = struct.pack("!6H", number, 0x8180 | says.code, 1, len(records), 0, 0)
        return head + question + b"".join(records)


def _parsed(query: bytes) -> tuple[int, bytes, str, int]:
    """Id, question section, name and type of a query."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    return (
        struct.unpack_from("!H", query)[0],
        query[12 : at + 5],
        ".".join(labels),
        struct.unpack_from("!H", query, at + 1)[0],
    )


def _wire(name: str) -> bytes:
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def _one_port() -> tuple[socket.socket, socket.socket]:
    """Sockets of both kinds on a port that is free for both."""
    while True:
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.bind(tcp.getsockname())
        except OSError:
            tcp.close()
            udp.close()
        else:
            return udp, tcp


@contextmanager
def name_server(names: Mapping[str, Says]) -> Iterator[NameServer]:
    """A server on a free port, until the end of the block."""
    server = NameServer(dict(names))
    udp, tcp = _one_port()
    server.port = tcp.getsockname()[1]

    def reply(query: bytes, sender: tuple[str, int]) -> None:
        answer = server.answer(query, tcp=False)
        if answer is not None:
            udp.sendto(answer, sender)

    def serve_udp() -> None:
        while True:
            try:
                query, sender = udp.recvfrom(4096)
            except OSError:
                return
            if query == b"end":
                return
            threading.Thread(target=reply, args=(query, sender), daemon=True).start()

    def serve_tcp() -> None:
        while True:
            try:
                connection, _ = tcp.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as incoming:
                while head := incoming.read(2):
                    answer = server.answer(incoming.read(struct.unpack("!H", head)[0]), tcp=True)
                    if answer is None:
                        break
                    connection.sendall(struct.pack("!H", len(answer)) + answer)

    threads = [threading.Thread(target=one, daemon=True) for one in (serve_udp, serve_tcp)]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        udp.sendto(b"end", ("127.0.0.1", server.port))  # a close does not wake recvfrom
        threads[0].join(10)
        tcp.shutdown(socket.SHUT_RDWR)
        udp.close()
        tcp.close()
