"""URLs: what to request, by what identity it is known, and how both are stored. No Django in here."""

from .canonical import URL, InvalidURL, canonicalise
from .key import from_reference, host_key, to_reference, url_hash
from .rules import NO_RULES, Rules

__all__ = [
    "NO_RULES",
    "URL",
    "InvalidURL",
    "Rules",
    "canonicalise",
    "from_reference",
    "host_key",
    "to_reference",
    "url_hash",
]
