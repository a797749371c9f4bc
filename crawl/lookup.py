"""What is known of a URL in a campaign, told without changing anything, and how look-ups read and print."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from django.core.management.base import CommandError, OutputWrapper
from rich.console import Console
from rich.text import Text

from crawl.fetch.robots import Robots
from crawl.fetch.robots import Verdict as RobotsVerdict
from crawl.fetch.target import origin_of
from crawl.models import Campaign, Fetch, Page, RobotsFile, Run
from crawl.pages import Key, key_of, places
from crawl.plan import read_plan
from crawl.scope import Verdict
from frontier.blocks import covering
from frontier.models import SEQUENCE_BITS, Host, Inbox, Queue, QueuedUrl, SeenRun
from frontier.priority import HELD
from frontier.schedule import Slot, slots
from frontier.seen.index import SeenIndex
from frontier.seen.runs import DamagedRun
from frontier.state import hash_seed, seen_directory
from frontier.urls import URL, InvalidURL, canonicalise, from_reference, host_key, to_reference, url_hash
from frontier.urls.key import HOST_KEY_BYTES, URL_HASH_BYTES
from trawl_project.version import AGENT

USAGE = 2

# No URL is longer than 8192 characters; what is beyond this in a line is skipped, not kept.
LINE_BYTES = 65_536
# Queues longer than this are not searched: 1M rows were looked through in 0.9 s.
QUEUE_ROWS = 2_000_000
# Of a queue in which a URL is not spelled as asked, this many rows are made canonical: 1.5 s.
RESPELLED_ROWS = 300_000
INBOX_LINKS = 5_000_000
HISTORY_ROWS = 100
# A merge that ends in this moment replaces run files; then the manifest has to be read once more.
SEEN_TRIES, SEEN_WAIT_SECONDS = 5, 0.05


# --- reading and printing ------------------------------------------------------------------------------


def take_urls(words: list[str]) -> Iterator[list[tuple[str, str]]]:
    """Batches of (URL, what is wrong with it as a line or ""); "-" stands for the lines of standard input.

    A batch of lines is what had come in when it was asked for, so that a slow writer gets each answer at once.
    """
    if words.count("-") > 1:
        raise CommandError("'-' (standard input) can be given only once", returncode=USAGE)
    for word in words:
        if word == "-":
            for lines in _lines():
                yield [_text(line) for line in lines]
        else:
            yield [(word, "")]


def _lines() -> Iterator[list[bytes]]:
    """The lines of standard input without their ends; of one beyond LINE_BYTES only so much and a byte more."""
    stream = standard_input()
    rest = b""
    while chunk := stream.read1(LINE_BYTES):
        *lines, end = chunk.split(b"\n")
        if lines:
            lines[0] = rest + lines[0]
            yield lines
            rest = end
        else:
            rest = (rest + end)[: LINE_BYTES + 1]
    if rest:
        yield [rest]


def _text(line: bytes) -> tuple[str, str]:
    # As Python reads arguments: bytes that are no UTF-8 become lone surrogates, which no URL may hold.
    text = line[:LINE_BYTES].removesuffix(b"\r").decode("utf-8", "surrogateescape")
    return text, "" if len(line) <= LINE_BYTES else f"the line is longer than {LINE_BYTES:,} bytes"


def standard_input() -> Any:
    """The bytes of standard input. Raises CommandError when there is none."""
    if sys.stdin is None:
        raise CommandError("standard input is closed; give a file, or pipe something in", returncode=USAGE)
    return sys.stdin.buffer


def read_file(name: str, limit: int) -> tuple[bytes, int | None]:
    """(at most `limit` + 1 bytes, the size where it is known) of a file or, for "-", standard input."""
    try:
        if name == "-":
            head = standard_input().read(limit + 1)
            return head, len(head) if len(head) <= limit else None
        with open(name, "rb") as file:
            head = file.read(limit + 1)
            return head, max(len(head), Path(name).stat().st_size)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"cannot read {printable(name)}: {reason}", returncode=USAGE) from None


def printable(text: str) -> str:
    """The text with escapes for what could steer a terminal, break a line, or not be encoded."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Printer:
    """Prints lines: in colour on a terminal, plain otherwise. Nothing is wrapped or cut."""

    def __init__(self, out: OutputWrapper, *, as_json: bool = False, plain: bool = False) -> None:
        self._out = out
        self._json = as_json
        if hasattr(sys.stdout, "reconfigure"):  # a title in Greek and a terminal in Latin-1
            sys.stdout.reconfigure(errors="backslashreplace")
        self._console = Console(no_color=plain or None) if out.isatty() and not as_json else None

    def record(self, record: dict[str, Any]) -> None:
        """One JSON object on a line of its own."""
        self._out.write(json.dumps(record))  # ASCII only, so that every terminal and pipe takes it

    def line(self, *parts: tuple[str, str]) -> None:
        """One line of (text, style) pieces."""
        if self._console:
            self._console.print(Text.assemble(*((printable(text), style) for text, style in parts)), soft_wrap=True)
        else:
            self._out.write("".join(printable(text) for text, _ in parts))

    def facts(self, facts: list[tuple[str, str]], gap: bool = False) -> None:
        """Names and values below each other, the values aligned; a name said twice is printed once. `gap`: after
        an empty line."""
        if gap:
            self.line(("", ""))
        width = max(len(name) for name, _ in facts)
        before = ""
        for name, value in facts:
            self.line((f"{'' if name == before else name:{width}}  ", "cyan"), (value, ""))
            before = name

    def columns(self, *values: str) -> None:
        """One line of values with tabs between."""
        self._out.write("\t".join(map(printable, values)))

    def flush(self) -> None:
        """Sends what was printed on its way."""
        self._out.flush()


# --- what a campaign knows of a URL ---------------------------------------------------------------------


class Arrival(NamedTuple):
    """A link in the inbox; `received_at` in ms since 1970."""

    level: int
    depth: int
    received_at: int


class Waiting(NamedTuple):
    """A URL in its back queue: the form to fetch, and its place in the order of taking where it was counted."""

    level: int
    depth: int
    fetch: str
    position: int | None


@dataclass(slots=True)
class Found:
    """All that is known of a URL. `state` is one of:

    unknown, inbox, waiting, held, fetched, failed (no answer), known (the frontier knows it, but its place
    was not found; `note` says why).
    """

    url: URL
    hash: bytes
    scope: Verdict
    state: str = "unknown"
    note: str = ""
    depth: int | None = None
    host: Host | None = None
    slot: Slot | None = None
    queue: int | None = None
    blocked: bool = False
    inbox: Arrival | None = None
    waiting: Waiting | None = None
    page: Page | None = None
    robots: tuple[RobotsFile, Robots, RobotsVerdict] | None = None
    history: list[Fetch] = field(default_factory=list)

    @property
    def key(self) -> Key | None:
        """The key of its page; None where nothing of its host has been queued."""
        return key_of(self.queue, self.hash) if self.queue else None

    @property
    def fetch(self) -> str:
        """The form that is or was asked for: the one first seen."""
        if self.waiting:
            return self.waiting.fetch
        return from_reference(self.page.ref, self.url.host) if self.page else self.url.fetch


class Seen:
    """The seen index as it lies on disk, for looking only."""

    def __init__(self) -> None:
        self._index: SeenIndex | None = None
        self.problem = ""

    def known(self, keys: list[Key]) -> dict[Key, bool] | None:
        """Which URLs the merge has let in; None when the index cannot tell, `problem` says why."""
        self.problem = ""
        directory = seen_directory()
        if not (directory / "store").exists():  # SeenIndex would make it
            if not SeenRun.objects.exists():
                return dict.fromkeys(keys, False)
            self.problem = f"there is none in {directory}"
            return None
        self._index = self._index or SeenIndex(directory)
        for attempt in range(SEEN_TRIES):
            try:
                self._index.refresh(verify=False)  # the merge does that
                break
            except (DamagedRun, FileNotFoundError) as damage:
                self.problem = str(damage)
                time.sleep(SEEN_WAIT_SECONDS if attempt + 1 < SEEN_TRIES else 0)
        else:
            return None
        self.problem = ""
        keys = sorted(keys)  # by queue and first, the high half
        high = np.array([key.queue << 32 | key.first for key in keys], np.uint64)
        low = np.array([key.rest & 0xFFFF_FFFF_FFFF_FFFF for key in keys], np.uint64)
        return dict(zip(keys, self._index.known(high, low).tolist(), strict=True))


class CampaignLookup:
    """Answers for the URLs of one campaign. Raises InvalidScope or ValueError for one that cannot be used."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.plan = read_plan(campaign, Run(campaign=campaign))
        self.seed = hash_seed()
        self.seen = Seen()

    def look(self, urls: list[URL], details: bool = True) -> list[Found]:
        """What is known of each URL; `details`: also places in queues and the history."""
        by_identity = {url.canonical: url for url in urls}
        blocked = covering({url.host for url in urls})
        found = [Found(url, url_hash(url.canonical, self.seed), Verdict(False, "")) for url in by_identity.values()]
        self._find_queues(found)
        self._find_places(found, details)
        for one in found:
            place = one.waiting or one.page or one.inbox
            one.depth = place.depth if place else None
            one.scope = self.plan.scope.verdict(one.url, one.depth or 0)
            one.blocked = one.url.host in blocked
        _find_robots(found)
        if details:
            _find_history(found)
        answers = {one.url.canonical: one for one in found}
        return [replace(answers[url.canonical], url=url) for url in urls]

    def _find_queues(self, found: list[Found]) -> None:
        hosts = {host.name: host for host in Host.objects.filter(name__in={one.url.host for one in found})}
        owned = Queue.objects.filter(host__in={host.pk for host in hosts.values()}, campaign=self.campaign.pk)
        queues = dict(owned.values_list("host_id", "id"))
        active = slots(host.pk for host in hosts.values() if host.active)
        for one in found:
            one.host = hosts.get(one.url.host)
            if one.host:
                one.queue, one.slot = queues.get(one.host.pk), active.get(one.host.pk)

    def _find_places(self, found: list[Found], details: bool) -> None:
        """Looks in the order in which URLs move on, inbox, queues, pages: none can slip through."""
        _find_pages(found)
        unsettled = [one for one in found if one.page is None or one.page.queued]
        if not unsettled:
            return
        self._find_in_inbox(unsettled)
        queued = [one for one in unsettled if one.queue]
        seen = self.seen.known([one.key for one in queued if one.key])
        known = None if seen is None else {one.hash for one in queued if one.key and seen[one.key]}
        self._find_in_queues([one for one in queued if one.page or known is None or one.hash in known], details)
        _find_pages(queued)
        for one in unsettled:
            one.state = _state(one, known is not None and one.hash in known)
            if known is None and one.queue:
                one.note = f"the seen index is damaged: {self.seen.problem}; repair it with: trawl rebuild_seen"
            elif one.state == "known" and not one.note:
                one.note = "the seen index has it, but no queue and no page; repair it with: trawl rebuild_seen"

    def _find_in_inbox(self, wanted: list[Found]) -> None:
        """The links that are on their way to the merge."""
        asked = {(host_key(self.campaign.pk, one.url.host, self.seed), one.hash): one for one in wanted}
        lows = np.array([int.from_bytes(one.hash[4:], "big") for one in wanted], np.uint64)
        left = INBOX_LINKS
        fields = ("links", "received_at", "name_keys", "name_index", "hashes", "levels", "depths")
        rows = Inbox.objects.filter(campaign=self.campaign.pk).order_by("id").values_list(*fields)
        for links, received, *blobs in rows.iterator(50):
            names, index, hashes, levels, depths = map(bytes, blobs)
            packed = np.frombuffer(hashes, [("high", ">u4"), ("low", ">u8")])
            for at in np.flatnonzero(np.isin(packed["low"], lows)).tolist():
                name = HOST_KEY_BYTES * int(np.frombuffer(index, "<u2")[at])
                hash_ = hashes[URL_HASH_BYTES * at :][:URL_HASH_BYTES]
                one = asked.get((names[name : name + HOST_KEY_BYTES], hash_))
                if one and one.inbox is None:
                    one.inbox = Arrival(levels[at], int(np.frombuffer(depths, "<u2")[at]), received)
            left -= links
            if left < 0:
                break

    def _find_in_queues(self, wanted: list[Found], details: bool) -> None:
        by_queue: dict[int, list[Found]] = {}
        for one in wanted:
            if one.queue:
                by_queue.setdefault(one.queue, []).append(one)
        for queue, members in by_queue.items():
            rows = QueuedUrl.objects.filter(id__gte=queue << 32, id__lt=(queue + 1) << 32).order_by("id")
            for one, (row, depth, ref) in self._rows_of(members, rows.values_list("id", "depth", "ref")):
                level = row >> SEQUENCE_BITS & HELD
                position = rows.filter(id__lt=row).count() + 1 if details and level != HELD else None
                one.waiting = Waiting(level, depth, from_reference(ref, one.url.host), position)

    def _rows_of(self, wanted: list[Found], rows: Any) -> Iterator[tuple[Found, tuple[int, int, str]]]:
        """(id, depth, reference) of URLs in their one queue, or a note why one could not be looked for."""
        host = wanted[0].url.host
        length = rows[: QUEUE_ROWS + 1].count()
        if length > QUEUE_ROWS:
            for one in wanted:
                one.note = f"the {length:,} URLs that wait on its host are too many to look through"
            return
        spelled = {to_reference(form, host): one for one in wanted for form in (one.url.fetch, one.url.canonical)}
        missing = {one.url.canonical: one for one in wanted}
        for row in rows.filter(ref__in=list(spelled)):
            if missing.pop(spelled[row[2]].url.canonical, None):
                yield spelled[row[2]], row
        # What is left may wait under another spelling: the queue keeps the one first seen.
        for row in rows[:RESPELLED_ROWS].iterator(10_000) if missing else ():
            if other := missing.pop(self._canonical(row[2], host), None):
                yield other, row
                if not missing:
                    return
        for one in missing.values() if length > RESPELLED_ROWS else ():
            one.note = f"only {RESPELLED_ROWS:,} of the {length:,} URLs that wait on its host were looked at"

    def _canonical(self, reference: str, host: str) -> str:
        try:
            return canonicalise(from_reference(reference, host), rules=self.plan.rules).canonical
        except InvalidURL:  # accepted by an older version
            return ""


def _state(one: Found, seen: bool) -> str:
    if one.waiting:
        return "held" if one.waiting.level == HELD else "waiting"
    if one.page:
        return "waiting" if one.page.queued else _visited(one.page)
    if one.inbox:
        return "inbox"
    return "known" if seen or one.note else "unknown"


def _visited(page: Page) -> str:
    return "fetched" if page.status else "failed"


def _find_pages(found: list[Found]) -> None:
    there = places(one.key for one in found if one.key)
    pages = Page.objects.in_bulk([place.id for place in there.values() if place.exists])
    for one in found:
        one.page = pages.get(there[one.key].id) if one.key and there[one.key].exists else None
        if one.page:
            one.state = _visited(one.page)


def _find_robots(found: list[Found]) -> None:
    """What the stored robots.txt says of each URL, in the form in which it is asked for."""
    rows = {row.origin: row for row in RobotsFile.objects.filter(origin__in={origin_of(one.fetch) for one in found})}
    rules = {row.origin: Robots.from_status(row.status, bytes(row.body), AGENT) for row in rows.values()}
    for one in found:
        origin = origin_of(one.fetch)
        if origin in rows:
            one.robots = rows[origin], rules[origin], rules[origin].verdict(one.fetch)


def _find_history(found: list[Found]) -> None:
    """The latest HISTORY_ROWS requests for each page, the latest first."""
    for one in found:
        if one.page:
            one.history = list(Fetch.objects.filter(page_id=one.page.pk).order_by("-at", "-id")[:HISTORY_ROWS])
