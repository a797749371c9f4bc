"""What may be asked before the sorted runs, to spare work: chosen by TRAWL_SEEN_PRECHECK, see docs/seen-set.md.

The sorted runs stay the only judge. A pre-check of the worker (`Written`) is an exact set that says "this link is
in the inbox or merged already, it need not be written once more"; what it does not say is written. A pre-check of
the merge (`Filter`) says "surely new, do not look" or "ask the runs". Neither can make a URL known that is not.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from frontier.seen.runs import U64, Mask

CACHE, REDIS, ROCKSDB, BLOOM, CUCKOO = WORDS = ("cache", "redis", "rocksdb", "bloom", "cuckoo")
# Not among the requirements: word -> package and version, as in the extra `seen` of pyproject.toml.
PACKAGES = {BLOOM: ("rbloom", "1.5.4"), ROCKSDB: ("rocksdict", "0.3.29")}


class Written(Protocol):
    """An exact set of links that were written down. A key is 20 bytes: campaign, URL hash."""

    def known(self, keys: list[bytes]) -> list[bool]:
        """For each key whether its link is surely in the inbox or merged. Out of order, it knows nothing."""

    def add(self, keys: list[bytes]) -> None:
        """Takes in links whose inbox row is committed. Raises nothing: what is not taken in is written again."""


class Filter(Protocol):
    """A set of 64-bit keys that has no false negatives and some false positives."""

    def add(self, keys: U64) -> None:
        """Inserts keys; none twice, as far as that can be helped."""

    def may_hold(self, keys: U64) -> Mask:
        """False: the key was surely not inserted."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the setting names; an empty text: none of that kind."""

    written: str = ""
    filter: str = ""
    redis_url: str = ""


def choice() -> Choice:
    """The setting, read: words, and perhaps a redis:// URL. Raises ImproperlyConfigured."""
    words = [word.strip() for word in settings.SEEN_PRECHECK if word.strip()]
    urls = [word for word in words if word.startswith(("redis://", "rediss://"))]
    kinds = dict.fromkeys(REDIS if word in urls else word for word in words)
    unknown = [word for word in kinds if word not in WORDS]
    if unknown:
        raise ImproperlyConfigured(f"TRAWL_SEEN_PRECHECK: '{unknown[0]}' is none of {', '.join(WORDS)} or redis://…")
    ours = [word for word in kinds if word in (REDIS, ROCKSDB)], [word for word in kinds if word in (BLOOM, CUCKOO)]
    for one in ours:
        if len(one) > 1:
            raise ImproperlyConfigured(f"TRAWL_SEEN_PRECHECK: {one[0]} and {one[1]} do the same work, name one of them")
    url = urls[0] if urls else str(settings.BROKER_URL)
    if REDIS in kinds and not url.startswith(("redis://", "rediss://")):
        raise ImproperlyConfigured("TRAWL_SEEN_PRECHECK: the broker is no Redis; name one as redis://host/1")
    return Choice("".join(ours[0]), "".join(ours[1]), url if REDIS in kinds else "")


def package(word: str) -> Any:
    """The module of an optional package. Raises ImproperlyConfigured with the command that installs it."""
    name, version = PACKAGES[word]
    try:
        return import_module(name)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"TRAWL_SEEN_PRECHECK names {word}, whose package is missing: pip install {name}=={version}"
        ) from error


def check() -> None:
    """Raises ImproperlyConfigured when the setting names what is not there; asks no server."""
    chosen = choice()
    for word in (chosen.written, chosen.filter):
        if word in PACKAGES:
            package(word)


@cache
def written(using: str) -> Written | None:
    """The worker's pre-check behind the cache that each process has anyway, or None."""
    chosen = choice()
    if chosen.written == REDIS:
        from frontier.seen.written import SharedSet

        return SharedSet(chosen.redis_url, using)
    if chosen.written == ROCKSDB:
        from frontier.seen.written import SetOnDisk

        return SetOnDisk(package(ROCKSDB))
    return None
