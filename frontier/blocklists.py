"""Lists of domains to block, as people publish them: hosts files, plain domains, Adblock rules."""

import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from frontier.urls import InvalidURL, canonicalise

FORMATS = ("auto", "hosts", "domains", "adblock")
BAD_LINES_TOLD = 20
QUOTED_CHARS = 60
# With its end. The rest of a longer line is passed over unread, so that no file can fill the memory.
MAX_LINE_CHARS = 65_536
# By so many lines that are neither empty nor comments a file is judged to be a list or none.
JUDGED_LINES = 1_000
GZIP_MAGIC = b"\x1f\x8b"

# A name that is its own canonical form for sure: ASCII in lower case, no punycode to check, no number at the end,
# which would make it an IPv4 address ("1.0x7f"). Ten times as fast as parsing; nearly all lines are such.
_PLAIN = re.compile(r"(?!.*(?:^|\.)xn--)(?=.{1,253}$)(?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62}").fullmatch
_NOT_A_NAME = re.compile(r"[\s/\\?#@%|^*]")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:.%a-z]*", re.IGNORECASE).fullmatch
_ANCHORED = re.compile(r"\|\|([^/^$|,~=!]+)\^?\|?").fullmatch
# Options that leave a rule to block all requests to its domain.
_WHOLE_DOMAIN = frozenset({"all", "important", "document", "doc"})
_COSMETIC = re.compile(r"#@?[?$%]?#")
# What the codec's "surrogateescape" makes of bytes that are not UTF-8.
_NOT_UTF8 = re.compile(r"[\udc80-\udcff]").search
# What hosts files say of the machine itself.
_OWN_NAMES = frozenset(
    {
        *("localhost", "localhost.localdomain", "local", "broadcasthost", "0.0.0.0"),
        *("ip6-localhost", "ip6-loopback", "ip6-localnet", "ip6-mcastprefix"),
        *("ip6-allnodes", "ip6-allrouters", "ip6-allhosts"),
        *("localhost4", "localhost4.localdomain4", "localhost6", "localhost6.localdomain6"),
    }
)


class Bad(NamedTuple):
    """A line that is nothing the format knows."""

    line: int
    text: str
    why: str


class BadLine(ValueError):
    """Why a line cannot be read."""


class NotAList(Exception):
    """Why a file is taken for something else than a list."""


def parse_domain(text: str) -> str:
    """The canonical name of a domain or IP address as written: lower case, punycode, IPv6 in brackets, no port.

    A leading "*." or "." and a dot at the end mean nothing. Raises InvalidURL.
    """
    name = text.strip()
    name = name[2:] if name.startswith("*.") else name.removeprefix(".")
    if _PLAIN(name):
        return name
    if _NOT_A_NAME.search(name) or not name:
        raise InvalidURL("write the name alone, for example tracker.example")
    if name.count(":") > 1 and not name.startswith("["):
        name = f"[{name}]"
    host = canonicalise(f"https://{name}/").host
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def is_top_level(domain: str) -> bool:
    """Whether a domain in its canonical form is a single label, as "com", and no IP address."""
    return "." not in domain and domain[0] != "["


class BlockList:
    """Reads one list and counts what it held.

    `skipped` counts by reason what is well-formed but blocks no whole domain; `bad` has the first lines that
    could not be read, `bad_lines` how many there were.
    """

    def __init__(self, kind: str = "auto") -> None:
        self._read = {"auto": _auto, "hosts": _hosts, "domains": _domain, "adblock": _adblock}[kind]
        self.lines = self.comments = self.bad_lines = self.names = 0
        self.skipped: Counter[str] = Counter()
        self.bad: list[Bad] = []

    def domains(self, lines: Iterable[str]) -> Iterator[str]:
        """The domains of the list in its order, with repeats. Raises NotAList."""
        for line in self._judged(iter(lines)):
            self.lines += 1
            text = line.strip()
            if len(line) > MAX_LINE_CHARS:
                self._complain(text, "the line is too long")
                continue
            if not text or (text[0] == "#" and not _COSMETIC.match(text)):
                self.comments += 1
                continue
            if (name := self._plain(text)) and "." in name and _PLAIN(name) and name not in _OWN_NAMES:
                self.names += 1
                yield name
                continue
            try:
                found = self._read(text, self.skipped)
            except (BadLine, InvalidURL) as error:
                self._complain(text, "the line is not UTF-8" if _NOT_UTF8(text) else str(error))
                continue
            self.comments += found is None
            self.names += len(found or ())
            yield from found or ()

    def _judged(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines, while they look like those of a list."""
        for line in lines:
            if "\0" in line:
                raise NotAList(f"line {self.lines + 1:,} holds a NUL byte, as binary files and UTF-16 text do")
            yield line
            if self.lines - self.comments == JUDGED_LINES:
                break
        judged = self.lines - self.comments
        if 2 * self.bad_lines > judged:
            number, text, why = self.bad[0]
            raise NotAList(
                f"of its first {judged:,} lines with something in them {self.bad_lines:,} are bad;"
                f" line {number:,}: '{text}': {why}"
            )
        yield from lines

    def _plain(self, text: str) -> str:
        """What is a name and nothing else in most lines; '' where this format has no such lines."""
        if self._read in (_auto, _hosts) and text.startswith(("0.0.0.0 ", "127.0.0.1 ")):
            return text.partition(" ")[2]
        return text if self._read in (_auto, _domain) else ""

    def _complain(self, text: str, why: str) -> None:
        self.bad_lines += 1
        if len(self.bad) < BAD_LINES_TOLD:
            short = text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "…"
            self.bad.append(Bad(self.lines, short, why))


# How a format reads a line: its domains, or None for a comment. They raise BadLine and InvalidURL.


def _auto(text: str, skipped: Counter[str]) -> list[str] | None:
    """Each line by its looks: lists of several kinds are often put together."""
    if (text[0] in "!|@[/" or "^" in text or _COSMETIC.search(text)) and not text.startswith(("[:", "[2", "[f")):
        return _adblock(text, skipped)
    first, *rest = text.split(None, 1)
    if rest and rest[0][0] != "#" and _ADDRESS(first):
        return _hosts(text, skipped)
    return _domain(text, skipped)


def _hosts(text: str, skipped: Counter[str]) -> list[str]:
    address, *names = text.partition("#")[0].split() or [""]
    if not _ADDRESS(address) or not names:
        raise BadLine("not an address with names behind it")
    others = [name for name in names if name.lower() not in _OWN_NAMES]
    if others and (fault := _sink_fault(address)):
        raise BadLine(fault)
    skipped["names of the machine itself"] += len(names) - len(others)
    return [_listed(name) for name in others]


@lru_cache(16)
def _sink_fault(address: str) -> str:
    """Why a hosts file that gives names this address does not block them, or ""."""
    try:
        ip = ip_address(address)
    except ValueError:
        return f"{address} is no IP address"
    if ip.is_unspecified or ip.is_loopback:
        return ""
    return f"{address} is where these names are; only 0.0.0.0, 127.0.0.1, :: and ::1 block"


def _domain(text: str, skipped: Counter[str]) -> list[str]:
    name = text.partition("#")[0].strip()
    if name.lower() in _OWN_NAMES:
        skipped["names of the machine itself"] += 1
        return []
    return [_listed(name)]


def _listed(name: str) -> str:
    """The canonical name of a domain in a list, where a single word or number is more likely to be something else."""
    domain = parse_domain(name)
    if is_top_level(domain):
        raise BadLine("a top-level domain; use `trawl block add` for it")
    if _ADDRESS(domain) and domain not in name:
        raise BadLine(f"another way to write {domain}; use `trawl block add` for it")
    return domain


def _adblock(text: str, skipped: Counter[str]) -> list[str] | None:
    if text[0] == "!" or (text[0] == "[" and text[-1] == "]"):
        return None
    if text.startswith("@@"):
        skipped["exceptions (@@), which are not supported"] += 1
    elif _COSMETIC.search(text):
        skipped["rules that hide parts of pages"] += 1
    elif not text.startswith("||"):
        if _PLAIN(text):  # AdGuard and uBlock block any URL that has it in its address
            return [_listed(text)]
        skipped["rules for parts of URLs"] += 1
    else:
        rule, _, options = text.partition("$")
        match = _ANCHORED(rule)
        if match is None or rule[-1] not in "^|" or "*" in match[1].removeprefix("*."):
            skipped["rules for parts of URLs"] += 1
        elif options and not _WHOLE_DOMAIN.issuperset(options.split(",")):
            skipped["rules whose options spare some requests"] += 1
        else:
            return [_listed(match[1])]
    return []


class Unreadable(Exception):
    """A list that cannot be read, or not to its end."""


class Source:
    """The lines of a file or stream, plain or gzip. `done` and `total` are bytes as they lie on the disk; the
    total of a stream is None."""

    def __init__(self, raw: Any, total: int | None) -> None:
        self._counted = _Counted(raw)
        self.total = total
        head = io.BufferedReader(self._counted, 1 << 16)
        packed: Any = gzip.GzipFile(fileobj=head) if head.peek(2)[:2] == GZIP_MAGIC else head
        # What is no UTF-8 becomes a bad line, and not an end.
        self._text = io.TextIOWrapper(packed, "utf-8-sig", "surrogateescape")

    def done(self) -> int:
        """Bytes read so far."""
        return self._counted.bytes

    def lines(self) -> Iterator[str]:
        """The lines, of one that is too long one character more than fits. Raises Unreadable."""
        try:
            while line := self._text.readline(MAX_LINE_CHARS + 1):
                yield line
                while len(line) > MAX_LINE_CHARS and line[-1] != "\n":
                    line = self._text.readline(MAX_LINE_CHARS + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise Unreadable(getattr(error, "strerror", None) or str(error)) from None

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *args: Any) -> None:
        self._text.close()
        self._counted.close()  # a GzipFile leaves what it reads from open


class _Counted(io.RawIOBase):
    """A raw stream that knows how much of it was read."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self.bytes += len(data)
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()


def open_list(name: str, stream: Any = None) -> Source:
    """A list by its file name, or in a binary stream. Raises Unreadable."""
    try:
        if stream is not None:
            return Source(stream, None)
        path = Path(name)
        file = path.open("rb")
        try:
            return Source(file, path.stat().st_size)
        except BaseException:
            file.close()
            raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise Unreadable(getattr(error, "strerror", None) or str(error)) from None
