"""The ports that a campaign goes to: those of web servers, those that its seeds name, and those that its owner adds.

A page can link to any port of any host, and so make a crawler knock at doors that are no site's. The ports of other
protocols are refused before that, in every URL (frontier/urls/ports.py).
"""

from collections.abc import Iterable
from functools import lru_cache

from frontier.urls import URL, port_of
from frontier.urls.ports import BAD_PORTS

WEB_PORTS = ("80", "443", "8080", "8443")
ANY = "any"
MAX_PORT = 65535
MAX_PORTS = 50  # that are added; they are kept in a column of 300 characters


class Ports:
    """Says to which ports links and redirects may lead. Raises ValueError for `added` that are no ports."""

    def __init__(self, added: str, seeds: Iterable[URL]) -> None:
        given = parse_ports(added)
        self._any = given == (ANY,)
        self._open = {*WEB_PORTS, *given, *(port_of(seed.host) for seed in seeds)}

        # A page's links lead to few hosts.
        self.refusal = lru_cache(maxsize=65536)(self._refusal)

    def _refusal(self, host: str) -> str:
        """Why a "host:port" is not asked at that port; empty where it may be."""
        port = port_of(host)
        if not port or self._any or port in self._open:
            return ""
        return f"port {port} is not one of the campaign's"


def parse_ports(text: str) -> tuple[str, ...]:
    """Ports with commas between, as they stand in canonical URLs, or "any" alone. Raises ValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == [ANY]:
        return (ANY,)
    if len(words) > MAX_PORTS:
        raise ValueError(f"more than {MAX_PORTS} ports; '{ANY}' opens all")
    return tuple(dict.fromkeys(map(_port, words)))


def _port(word: str) -> str:
    port = word.lstrip("0") if word.isascii() and word.isdigit() else ""
    if not port or len(port) > 5 or int(port) > MAX_PORT:
        raise ValueError(f"'{word}' is not a port: give numbers up to {MAX_PORT} with commas between, or '{ANY}'")
    if port in BAD_PORTS:
        raise ValueError(f"port {port} is not a web port")
    return port
