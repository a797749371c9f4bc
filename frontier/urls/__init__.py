"""URLs: what to request, by what identity it is known, and how both are stored. No Django in here."""

from .canonical import URL, InvalidURL, canonicalise
from .key import URL_HASH_BYTES, from_reference, host_key, to_reference, url_digest, url_hash
from .ports import port_of
from .resolve import resolve
from .rules import NO_RULES, Rules

__all__ = [
    "NO_RULES",
    "URL",
    "URL_HASH_BYTES",
    "InvalidURL",
    "Rules",
    "canonicalise",
    "from_reference",
    "host_key",
    "port_of",
    "resolve",
    "to_reference",
    "url_digest",
    "url_hash",
]
