"""The references of a page, resolved against its base, many at a time.

The pages of a site repeat their menus and link to each other, so most references were met before, and to look one up
costs a small part of parsing it. What is looked up is the reference joined to what it is relative to, as text: the
parser makes the same URL of both. References for which that does not hold are parsed each time.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from string import ascii_letters, digits

from .canonical import MAX_URL_CHARS, URL, InvalidURL, canonicalise
from .rules import Rules

REMEMBERED = 32_768  # about 600 bytes each
_ABSOLUTE = ("http://", "https://")
_PLAIN_INITIALS = frozenset(ascii_letters + digits + "._-~%")
# "/" and one of these begin a host: the parser takes a backslash for a slash, and leaves tabs and line breaks out.
_HOST_FOLLOWS = frozenset("/\\\t\n\r")


def resolve(references: Iterable[str], base: str, rules: Rules) -> Iterator[URL]:
    """The URLs of references as `canonicalise` finds them, in their order; what is no URL is left out. Fragments, which
    no URL keeps, are not looked at."""
    try:
        whole = canonicalise(base).fetch
    except InvalidURL:
        return
    known = _known(rules)
    path, _, _ = whole.partition("?")
    origin, folder = path[: path.index("/", 8)], path[: path.rindex("/") + 1]
    room = MAX_URL_CHARS - len(folder)
    for reference in references:
        plain = reference[: reference.index("#")] if "#" in reference else reference
        if not plain or plain[-1] <= " " or len(reference) > room:
            url = _parsed(reference, base, rules)
        elif plain.startswith(_ABSOLUTE):
            url = known(plain)
        elif plain[0] == "/" and plain[1:2] not in _HOST_FOLLOWS:
            url = known(origin + plain)
        elif plain[0] in _PLAIN_INITIALS and ":" not in plain:
            url = known(folder + plain)
        else:
            url = _parsed(reference, base, rules)
        if url is not None:
            yield url


@lru_cache(maxsize=4)
def _known(rules: Rules) -> Callable[[str], URL | None]:
    """What is remembered of absolute URLs under these rules."""
    return lru_cache(maxsize=REMEMBERED)(lambda url: _parsed(url, None, rules))


def _parsed(reference: str, base: str | None, rules: Rules) -> URL | None:
    try:
        return canonicalise(reference, base, rules)
    except InvalidURL:
        return None
