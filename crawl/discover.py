"""From an answer to what it says: text, title, links, and which of those belong to the campaign."""

from dataclasses import dataclass, field

import xxhash

from crawl.fetch.decode import Decoded, decode_body
from crawl.fetch.errors import Kind
from crawl.fetch.response import Response
from crawl.parse.charset import for_parser
from crawl.parse.html import Parsed, is_html, parse_html, robots_header
from crawl.plan import Plan
from frontier.admission import Link
from frontier.priority import LAST, by_depth
from frontier.urls import URL, resolve
from trawl_project.version import AGENT

MAX_DECODED_BYTES = 64 * 1024 * 1024
MANY = 1_000  # links of one page
_ODD = {
    "not-encoded": "the body is not so encoded; it was read as it came",
    "truncated": "the body is damaged or ends early; it was read as far as it goes",
    "unknown-encoding": "that is not known; the body was read as it came",
}


@dataclass(slots=True)
class Discovery:
    """What a body held. `refused`: links that would belong to the campaign but for their port; `error` where it could
    not be read in full; `note`: what was odd about it."""

    digest: str = ""
    title: str = ""
    noindex: bool = False
    links: list[Link] = field(default_factory=list)
    refused: list[URL] = field(default_factory=list)
    error: Kind | None = None
    note: str = ""


@dataclass(slots=True)
class Reading:
    """What the body of an answer says. `page`: None for what is no HTML; `header`: what X-Robots-Tag says of
    (noindex, nofollow)."""

    decoded: Decoded
    page: Parsed | None = None
    encoding: str = ""
    header: tuple[bool, bool] = (False, False)


def read(response: Response, url: URL) -> Reading:
    """Decodes the body of an answer and parses it if it is HTML."""
    headers = response.headers
    decoded = decode_body(response.body, headers.get("content-encoding"), MAX_DECODED_BYTES)
    content_type = headers.get("content-type")
    if not is_html(content_type, decoded.body[:1024]):
        return Reading(decoded)
    content, encoding = for_parser(decoded.body, content_type)
    tag = headers.get("x-robots-tag")
    header = robots_header([tag], AGENT) if tag else (False, False)
    return Reading(decoded, parse_html(content, url.fetch, AGENT), encoding, header)


def discover(response: Response, url: URL, depth: int, plan: Plan) -> Discovery:
    """Reads a 2xx answer: decodes it, finds its links, keeps those in scope. `depth` is the page's own."""
    reading = read(response, url)
    decoded, page = reading.decoded, reading.page
    found = Discovery(digest=f"xxh3:{xxhash.xxh3_128_hexdigest(decoded.body)}")
    if decoded.flag == "bomb":
        found.error = Kind.BOMB
    elif decoded.flag:
        encoding = response.headers.get("content-encoding", "")[:40]
        found.note = f"Content-Encoding: {encoding}, but {_ODD[decoded.flag]}"
    if page is None:
        return found
    noindex, nofollow = reading.header
    found.title = page.title or ""
    found.noindex = page.noindex or noindex
    if not (page.nofollow or nofollow):
        hrefs = dict.fromkeys(link.href for link in page.links if not link.nofollow)
        found.links, found.refused = in_scope(hrefs, page.base, depth + 1, plan)
    return found


def in_scope(hrefs: dict[str, None], base: str, depth: int, plan: Plan) -> tuple[list[Link], list[URL]]:
    """References as links of the campaign, and those that its ports alone keep out, each URL once; what is no URL or
    out of scope is left out.

    All are kept; those after the first MANY are taken last, so that a page of a hundred thousand links, which is more
    often a trap than a table of contents, does not keep its host from every page that is further away.
    """
    links: dict[str, Link] = {}
    refused: dict[str, URL] = {}
    level = by_depth(depth)
    verdict = plan.scope.verdict
    for url in resolve(hrefs, base, plan.rules):
        judged = verdict(url, depth)
        if judged.allowed:
            if url.canonical not in links:
                links[url.canonical] = Link(url, level if len(links) < MANY else LAST, depth)
        elif judged.kind is Kind.BLOCKED_PORT:
            refused.setdefault(url.canonical, url)
    return list(links.values()), list(refused.values())
