"""The scope of a campaign: which URLs belong to it, and which rule said so. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import re2

from crawl.fetch.errors import Kind
from crawl.ports import Ports
from frontier.urls import URL

if TYPE_CHECKING:
    from tldextract import TLDExtract


class InvalidScope(ValueError):
    """A scope that cannot be used; the message says which part and why."""


class Verdict(NamedTuple):
    """Whether a URL is in scope, and the rule that decided. `kind`: as what a redirect to it fails."""

    allowed: bool
    rule: str
    kind: Kind = Kind.OUT_OF_SCOPE


_SEED = Verdict(True, "seed")
_REPEATS = re.compile(r"[*+{]")
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class Scope:
    """The seeds' reach, narrowed by include and exclude patterns, a depth, and ports.

    A URL belongs to the campaign when it is within reach, no exclude pattern is found in it, if there are include
    patterns, one of them is, and its port is one of the campaign's (crawl/ports.py). Seeds always belong. Raises
    InvalidScope for a pattern that is no regular expression (see compile_pattern), or ports that are none.
    """

    def __init__(
        self,
        reach: str,
        seeds: Iterable[URL],
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        max_depth: int | None = None,
        ports: str = "",
    ) -> None:
        seeds = list(seeds)
        self.reach = reach
        # The usual answers, made once: every link of every page is judged.
        self._within = Verdict(True, f"reach: {reach}")
        self._beyond = Verdict(False, f"not within reach: {reach}")
        self.max_depth = max_depth
        self._include = [compile_pattern(text) for text in include]
        self._exclude = [compile_pattern(text) for text in exclude]
        try:
            self.ports = Ports(ports, seeds)
        except ValueError as error:
            raise InvalidScope(str(error)) from None
        self._seeds: set[str] = set()
        self._hosts: set[str] = set()
        self._prefixes: dict[str, set[str]] = {}  # by host
        for seed in seeds:
            self._seeds.add(seed.canonical)
            self._hosts.add(registered_domain(seed.host) if reach == "domain" else seed.host)
            self._prefixes.setdefault(seed.host, set()).add(folder(seed.canonical))
        self._in_reach = {
            "any": lambda url: True,
            "host": lambda url: url.host in self._hosts,
            "domain": lambda url: registered_domain(url.host) in self._hosts,
            "prefix": self._below_seed,
        }[reach]

    def verdict(self, url: URL, depth: int = 0) -> Verdict:
        """Whether the URL belongs to the campaign at this depth, with the rule that decided."""
        if url.canonical in self._seeds:
            return _SEED
        if self.max_depth is not None and depth > self.max_depth:
            return Verdict(False, f"depth {depth} is beyond {self.max_depth}")
        if not self._in_reach(url):
            return self._beyond
        for pattern in self._exclude:
            if pattern.search(url.canonical):
                return Verdict(False, f"exclude {pattern.pattern}")
        if ":" in url.host and (refusal := self.ports.refusal(url.host)):
            return Verdict(False, refusal, Kind.BLOCKED_PORT)
        if not self._include:
            return self._within
        for pattern in self._include:
            if pattern.search(url.canonical):
                return Verdict(True, f"include {pattern.pattern}")
        return Verdict(False, "no include pattern is found in it")

    def _below_seed(self, url: URL) -> bool:
        return any(url.canonical.startswith(prefix) for prefix in self._prefixes.get(url.host, ()))


def compile_pattern(text: str) -> Any:
    """A pattern with `search`, which takes time in proportion to the URL's length, whatever the pattern.

    The syntax is RE2's: no look-around, no back references. Patterns that repeat nothing are left to Python's engine,
    which needs 0.1 us for a URL where RE2's wrapper needs 4. Raises InvalidScope.
    """
    try:
        safe = re2.compile(text, _OPTIONS)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise InvalidScope(f"'{text}' is not a regular expression of RE2's syntax: {why}") from None
    try:
        return safe if _REPEATS.search(text) else re.compile(text)
    except re.error:  # RE2 knows some that Python does not
        return safe


def registered_domain(host: str) -> str:
    """The domain that somebody registered: a.b.example.co.uk:8080 -> example.co.uk; an address stays itself."""
    name = host if host.startswith("[") else host.partition(":")[0]
    return _suffixes()(name).top_domain_under_public_suffix or name


@cache
def _suffixes() -> TLDExtract:
    # Imported on first use: 0.25 s that only crawls of whole domains pay. The list of public suffixes comes with the
    # package: no network, no cache directory.
    from tldextract import TLDExtract

    return TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


def folder(canonical: str) -> str:
    """The folder that a URL lies in, with its origin: everything up to the last slash of its path."""
    parts = urlsplit(canonical)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rpartition('/')[0]}/"
