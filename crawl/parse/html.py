"""One pass over a page: its title, its links, and what it asks of crawlers.

Measured on the rig's pages (28 KB, 60 links), one core: parsing alone is 161 us; with one combined
CSS selector and its attributes it is 234, with eight lookups by tag name and their attributes 195. So: by tag
name, although links then come grouped by kind and not in page order.
"""

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import AnyStr, NamedTuple
from urllib.parse import urljoin

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

AGENT_TOKEN = "trawl"  # the product token that pages and headers may name us by
MAX_LINKS = 50_000  # a page
MAX_TITLE_CHARS = 300

_NO_EVENTS = int(LexborDocumentOptions.WO_EVENTS)
# What the URL standard drops at both ends of a URL: C0 controls and space.
_C0_OR_SPACE = "".join(map(chr, range(0x21)))
_NO_PAGE = ("javascript:", "mailto:", "tel:", "data:")
_NO_PAGE_INITIALS = frozenset("jJmMtTdD")
# A reference that begins so needs no more than a look at its end.
_PLAIN_INITIALS = frozenset(string.ascii_letters + string.digits + "/.?") - _NO_PAGE_INITIALS
_NOFOLLOW_RELS = frozenset({"nofollow", "ugc", "sponsored"})
_LINK_KINDS = {"next": "link-next", "prev": "link-next", "alternate": "link-alternate"}
_VALUED_DIRECTIVES = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})

# "shared declarative refresh steps" of the HTML standard: a time, a separator, then perhaps "url=". The last
# group takes anything, so nothing here can backtrack.
_REFRESH = re.compile(r"\s*[0-9.]+(?=[;,\s])\s*[;,]?\s*(?:url\s*=\s*)?(.*)", re.I | re.S | re.A)
_SEPARATORS = re.compile(r"[\s,;]+")
_TOKEN = re.compile(r"[A-Za-z_-]+")
_HTML_START = re.compile(
    rb"\s*<(?:!--|(?:!doctype\s+html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|meta"
    rb"|link|base|frameset|noscript)(?=[\s>/]))",
    re.I,
)

# Three inputs make lexbor quadratic, and it has no limit for any of them:
# 1. Open <div>s: each start tag looks up through all of them for a <p>. 100,000 of them take 14 s.
# 2. Distinct open formatting tags: every new block reopens them all. 700 <b id=...> and 700 <p>, 10 KB, make
#    490,000 nodes and 213 MB.
# 3. Attributes: each new name is compared with all of its tag. A log file with a stray "<x" whose every word
#    becomes an attribute: 20,000 of them take 0.9 s.
# For the first two the bounds are counts of tags: closing tags prove nothing, a parser may ignore them.
_MAX_TREE_TAGS = 10_000  # <div>s take 0.14 s
_MAX_REOPENED = 200_000  # nodes, about 90 MB
_MAX_TAGS_SQUARED = 4 * _MAX_REOPENED  # t tags reopen at most (t / 2) ** 2 others
_FORMATTING = re.compile(r"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)\b[^<>]*", re.I | re.A)
_WINDOW_CHARS = 2000
_LONG_TAG = re.compile(rf"<[a-z][^<>]{{{2 * _WINDOW_CHARS},}}", re.I | re.A)
_MAX_TAG_WORDS = 500
# Above them the page is parsed without any tag that could nest and that we do not read: same links, flat
# tree. A "<" inside an attribute value ends the match; what is left over is text.
_NESTING = re.compile(
    r"</?(?!(?:a|area|base|frame|frameset|iframe|link|meta|noembed|noframes|plaintext|script|style|template"
    r"|textarea|title|xmp)[\s/>])[a-zA-Z][^<>]*>",
    re.I | re.A,
)


class Link(NamedTuple):
    """A reference as the page spells it, only stripped at its ends; resolving it is the caller's work."""

    href: str
    kind: str  # a, area, link-next (also prev), link-canonical, link-alternate, iframe, frame, refresh
    nofollow: bool  # its own rel says nofollow, ugc or sponsored


@dataclass(slots=True)
class Parsed:
    """What a page says. Hrefs are to be resolved against `base`."""

    base: str
    title: str | None = None
    links: list[Link] = field(default_factory=list)
    canonical: str | None = None
    noindex: bool = False
    nofollow: bool = False
    truncated: bool = False  # the page has more than MAX_LINKS links


def parse_html(page: str | bytes, url: str, agent: str = AGENT_TOKEN) -> Parsed:
    """Read a page found at `url`: its text, or its bytes when they are valid UTF-8 without a byte order mark. Never
    raises; odd markup is read as a browser would.

    Links come by kind: refresh, link, a, area, iframe, frame; in page order within a kind.
    """
    tree = LexborHTMLParser(_tamed(page), options=_NO_EVENTS)
    parsed = Parsed(_base(tree, url), _title(tree))
    links = parsed.links
    links += [Link(href, "refresh", False) for href in _read_metas(tree, parsed, agent.lower())]
    _take_heads(tree, parsed)
    for kind in ("a", "area"):
        _take_anchors(tree.tags(kind), kind, links)
    for kind in ("iframe", "frame"):
        hrefs = (_fetchable(node.attributes.get("src")) for node in tree.tags(kind))
        links += [Link(href, kind, False) for href in hrefs if href]
    parsed.truncated = len(links) > MAX_LINKS
    del links[MAX_LINKS:]
    return parsed


def robots_header(values: Iterable[str], agent: str) -> tuple[bool, bool]:
    """(noindex, nofollow) of the X-Robots-Tag values, one item per header line.

    "agent: directives" holds for that agent alone, up to the next agent in the same line.
    """
    directives: set[str] = set()
    for value in values:
        ours = True
        for piece in value.split(","):
            name, colon, rest = piece.partition(":")
            name = name.strip().lower()
            if not colon:
                if ours:
                    directives.update(_SEPARATORS.split(name))
            # A date of unavailable_after holds commas and colons too; its pieces are no agent's name.
            elif name not in _VALUED_DIRECTIVES and (name == "*" or _TOKEN.match(name)) and " " not in name:
                ours = name == "*" or _token(name) == _token(agent)
                if ours:
                    directives.update(_SEPARATORS.split(rest.lower()))
    return _obeyed(directives)


def is_html(content_type: str | None, body_start: bytes) -> bool:
    """Is this to be read as HTML? By its type; by its first bytes when that says nothing (MIME Sniffing)."""
    essence = re.split("[;,]", content_type or "", maxsplit=1)[0].strip().lower()
    if essence in ("text/html", "application/xhtml+xml"):
        return True
    if "/" in essence and essence not in ("unknown/unknown", "application/unknown", "*/*"):
        return False
    start = body_start[:1024].removeprefix(b"\xef\xbb\xbf")
    if start.lstrip().startswith(b"<?xml"):
        return b"<html" in start
    return _HTML_START.match(start) is not None


def _tamed(page: str | bytes) -> str | bytes:
    """The page as lexbor may get it."""
    if isinstance(page, bytes):
        if page.count(b"<") ** 2 <= _MAX_TAGS_SQUARED and not _has_long_tag(page, b"<", b">"):
            return page
        page = page.decode("utf-8", "replace")
    return _flat(_LONG_TAG.sub(_without_words, page) if _has_long_tag(page, "<", ">") else page)


def _has_long_tag(page: AnyStr, opens: AnyStr, closes: AnyStr) -> bool:
    # A run of two windows covers a whole aligned one, so looking at those is enough: 5 us a page.
    for start in range(0, len(page), _WINDOW_CHARS):
        end = start + _WINDOW_CHARS
        if page.find(opens, start, end) < 0 and page.find(closes, start, end) < 0:
            return True
    return False


def _without_words(match: re.Match[str]) -> str:
    """A tag long by one value (a data: picture) stays; one of very many words goes."""
    return match[0] if len(match[0].split(None, _MAX_TAG_WORDS)) <= _MAX_TAG_WORDS else ""


def _flat(text: str) -> str:
    tags = text.count("<")
    if tags * tags <= _MAX_TAGS_SQUARED:
        return text
    if tags <= _MAX_TREE_TAGS:
        # A parser keeps at most three equal ones open ("Noah's Ark clause").
        reopened = 3 * len(set(_FORMATTING.findall(text)))
        if reopened * tags <= _MAX_REOPENED:
            return text
    return _NESTING.sub("", text)


def _base(tree: LexborHTMLParser, url: str) -> str:
    for node in tree.tags("base"):
        href = node.attributes.get("href")
        if href is not None:
            try:
                base = urljoin(url, href.strip(_C0_OR_SPACE))
            except ValueError:  # "//[" and the like
                return url
            return base if base.lower().startswith(("http://", "https://")) else url
    return url


def _title(tree: LexborHTMLParser) -> str | None:
    for node in tree.tags("title"):
        if not _in_drawing(node):
            # A title that nobody closed holds the rest of the page.
            words = node.text()[: 20 * MAX_TITLE_CHARS].split()
            return " ".join(words)[:MAX_TITLE_CHARS].rstrip() or None
    return None


def _in_drawing(node: LexborNode) -> bool:
    """Is this the <title> of an SVG picture, a tooltip?"""
    parent = node.parent
    for _ in range(20):  # pictures are shallow; a page nested 10,000 deep is not climbed
        if parent is None or parent.tag in ("head", "body", "html"):
            return False
        if parent.tag == "svg":
            return True
        parent = parent.parent
    return False


def _read_metas(tree: LexborHTMLParser, parsed: Parsed, agent: str) -> list[str]:
    """Note the robots directives; return the targets of meta refreshes."""
    refreshes: list[str] = []
    directives: set[str] = set()
    for node in tree.tags("meta"):
        attributes = node.attributes
        content = attributes.get("content")
        if not content:
            continue
        if (attributes.get("name") or "").strip().lower() in ("robots", agent):
            directives.update(_SEPARATORS.split(content.lower()))
        elif (attributes.get("http-equiv") or "").strip().lower() == "refresh":
            refreshes += filter(None, [_fetchable(_refresh_target(content))])
    parsed.noindex, parsed.nofollow = _obeyed(directives)
    return refreshes


def _obeyed(directives: set[str]) -> tuple[bool, bool]:
    return not directives.isdisjoint(("noindex", "none")), not directives.isdisjoint(("nofollow", "none"))


def _refresh_target(content: str) -> str | None:
    match = _REFRESH.match(content)
    if match is None:
        return None
    target = match[1]
    if target[:1] in ("'", '"'):
        target = target[1:].partition(target[0])[0]
    return target


def _take_heads(tree: LexborHTMLParser, parsed: Parsed) -> None:
    for node in tree.tags("link"):
        attributes = node.attributes
        rels = (attributes.get("rel") or "").lower().split()
        kind = _link_kind(rels)
        if kind and (href := _fetchable(attributes.get("href"))):
            parsed.links.append(Link(href, kind, not _NOFOLLOW_RELS.isdisjoint(rels)))
            if kind == "link-canonical" and parsed.canonical is None:
                parsed.canonical = href


def _take_anchors(nodes: list[LexborNode], kind: str, links: list[Link]) -> None:
    add = links.append
    for node in nodes:
        attributes = node.attributes
        href = attributes.get("href")
        # Nearly all begin with a letter, a slash or a dot that need no second look; the rest take the long way.
        if not href:
            continue
        if href[0] not in _PLAIN_INITIALS or href[-1] <= " ":
            href = _fetchable(href)
            if not href:
                continue
        rel = attributes.get("rel")
        add(Link(href, kind, bool(rel and not _NOFOLLOW_RELS.isdisjoint(rel.lower().split()))))
        if len(links) > MAX_LINKS:
            break


def _link_kind(rels: list[str]) -> str | None:
    if "canonical" in rels:
        return "link-canonical"
    if "stylesheet" in rels:  # an alternate stylesheet is not another page
        return None
    return next((_LINK_KINDS[rel] for rel in rels if rel in _LINK_KINDS), None)


def _fetchable(href: str | None) -> str | None:
    """The reference without the ends that the URL standard drops; None when it leads to no other page."""
    href = href and href.strip(_C0_OR_SPACE)
    if not href or href[0] == "#":
        return None
    if href[0] in _NO_PAGE_INITIALS and href[:11].lower().startswith(_NO_PAGE):
        return None
    return href


def _token(name: str) -> str | None:
    match = _TOKEN.match(name)
    return match[0].lower() if match else None
