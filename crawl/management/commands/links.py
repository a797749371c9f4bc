"""trawl links FILE --url URL: what the parser finds in a saved page."""

import base64
import binascii
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.core.management.base import CommandError, CommandParser

from crawl.fetch.visit import MAX_BODY_BYTES
from crawl.lookup import USAGE, Printer, read_file, standard_input
from crawl.parse.charset import decode
from crawl.parse.html import MAX_LINKS, is_html, parse_html
from frontier.urls import InvalidURL, canonicalise
from trawl_project.detailed import DetailedCommand
from trawl_project.version import AGENT

DETAILS = """\
Each link is shown as written, then the URL that would be asked for, then its canonical form where that
differs. Whether a link is in the scope of a campaign: trawl url URL --campaign NAME.

Without --url, FILE holds one JSON object a line, so that many pages can be read in one go:
  {"url": URL, "html": TEXT}  or  {"url": URL, "content_type": CT, "base64": BYTES}

exit code: 0 done, 1 some of these lines cannot be used, 2 wrong usage
"""
# Base64 of the longest body, and some.
MAX_LINE_BYTES = 2 * MAX_BODY_BYTES


class Command(DetailedCommand):
    """Prints what the parser finds in a saved page."""

    help = "show what the parser finds in a saved page: its links, title, encoding and robots directives"
    details = DETAILS
    needs_database = False
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("file", metavar="FILE", help="a page as it was received, or '-' for standard input")
        add("--url", metavar="URL", help="where the page was found")
        add("--content-type", metavar="CT", help="the Content-Type header it came with (default: none)")
        add("--json", action="store_true", help="print one JSON object a page, on one line")

    def handle(self, *args: Any, **options: Any) -> None:
        printer = Printer(self.stdout, as_json=options["json"], plain=options["no_color"])
        all_read, first = True, True
        for record in self._answers(options):
            all_read &= "error" not in record
            if options["json"]:
                printer.record(record)
            else:
                show(record, printer, gap=not first)
            first = False
            printer.flush()
        if not all_read:
            sys.exit(1)

    def _answers(self, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if options["url"] is None:
            if options["content_type"] is not None:
                raise CommandError("--content-type belongs to one page: give its --url, too", returncode=USAGE)
            return answers(options["file"])
        try:
            canonicalise(options["url"])
        except InvalidURL as error:
            raise CommandError(f"--url is not usable: {error}", returncode=USAGE) from None
        body, _ = read_file(options["file"], MAX_BODY_BYTES)
        return iter([answer(Saved(options["url"], options["content_type"], body))])


class Saved(NamedTuple):
    """A page as it was received."""

    url: str
    content_type: str | None
    body: bytes


def answer(page: Saved) -> dict[str, Any]:
    """What the parser finds in a page, as JSON has it. Raises InvalidURL."""
    found_at = canonicalise(page.url).fetch
    body = page.body[:MAX_BODY_BYTES]
    text, encoding = decode(body, page.content_type)
    parsed = parse_html(text, found_at, AGENT)
    return {
        "url": page.url,
        "is_html": is_html(page.content_type, body[:1024]),
        "bytes": len(body),
        "cut": len(page.body) > MAX_BODY_BYTES,
        "encoding": encoding,
        "title": parsed.title,
        "base": parsed.base,
        "canonical": parsed.canonical,
        "noindex": parsed.noindex,
        "nofollow": parsed.nofollow,
        "truncated": parsed.truncated,
        "links": [{**link._asdict(), **resolved(link.href, parsed.base)} for link in parsed.links],
    }


def resolved(href: str, base: str) -> dict[str, Any]:
    """The URL that a reference stands for, or why it is refused."""
    try:
        url = canonicalise(href, base)
    except InvalidURL as error:
        return {"absolute": None, "canonical": None, "refused": str(error)}
    return {"absolute": url.fetch, "canonical": url.canonical, "refused": None}


# --- many pages ---------------------------------------------------------------------------------------------


def answers(name: str) -> Iterator[dict[str, Any]]:
    """An answer for each line of a JSON Lines file, in order; for one that cannot be used the reason."""
    try:
        stream = standard_input() if name == "-" else open(name, "rb")  # noqa: SIM115 - ends with the process
        number = 0
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            try:
                yield answer(saved(line))
            except ValueError as error:  # InvalidURL, broken JSON and broken base64 are some
                yield {"line": number, "error": _first_line(error)}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"cannot read {name}: {reason}; or give --url for a page", returncode=USAGE) from None


def saved(line: bytes) -> Saved:
    """The page that a line of JSON holds. Raises ValueError."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({_first_line(error)}); for a page that is no JSON give --url") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    url, content_type = found.get("url"), found.get("content_type")
    if not isinstance(url, str) or not isinstance(content_type, str | None):
        raise ValueError('"url" must be a text, and "content_type", if any, too')
    html, packed = found.get("html"), found.get("base64")
    if isinstance(html, str) and packed is None:
        # What is text already has no encoding left to find; the mark says so.
        return Saved(url, content_type, b"\xef\xbb\xbf" + html.encode("utf-8", "replace"))
    if isinstance(packed, str) and html is None:
        try:
            return Saved(url, content_type, base64.b64decode(packed, validate=True))
        except binascii.Error as error:
            raise ValueError(f'"base64" is not base64: {error}') from None
    raise ValueError('either "html" or "base64" must be a text')


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# --- for people ------------------------------------------------------------------------------------------------


def show(record: dict[str, Any], printer: Printer, gap: bool) -> None:
    """Prints one page; `gap`: after an empty line."""
    if "error" in record:
        printer.facts([("line", str(record["line"])), ("invalid", record["error"])], gap)
        return
    printer.facts(facts(record), gap)
    printer.line(("", ""))
    for link in record["links"]:
        printer.line(*sentence(link))


def facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The names and values that are printed before the links."""
    directives = " ".join(name for name in ("noindex", "nofollow") if record[name])
    told = [
        ("url", record["url"]),
        ("encoding", record["encoding"]),
        ("title", record["title"] or "none"),
        ("base", record["base"]),
        ("canonical", record["canonical"] or "none"),
        ("robots", directives or "none"),
        ("links", f"{len(record['links']):,}" + (f", the first {MAX_LINKS:,} only" if record["truncated"] else "")),
    ]
    if not record["is_html"]:
        told.append(("note", "by its type and first bytes it is no HTML; a crawl would not look for links in it"))
    if record["cut"]:
        told.append(("note", f"only the first {MAX_BODY_BYTES:,} bytes were read, as in a crawl"))
    if record["nofollow"]:
        told.append(("note", "a crawl follows none of its links"))
    return told


def sentence(link: dict[str, Any]) -> list[tuple[str, str]]:
    """The line of one link, as pieces of (text, style)."""
    start = [(f"{link['kind']:14}  {'nofollow' if link['nofollow'] else '':8}  ", "cyan"), (link["href"], "")]
    if link["refused"]:
        return [*start, (f"  refused: {link['refused']}", "yellow")]
    if link["absolute"] != link["href"]:
        start.append((f" -> {link['absolute']}", ""))
    if link["canonical"] != link["absolute"]:
        start.append((f" = {link['canonical']}", "dim"))
    return start
