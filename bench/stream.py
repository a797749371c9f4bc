"""Streams of links for the frontier benchmark, the same on every machine and in every process.

    python bench/stream.py crawl|random|sequential URLS HOSTS

prints one page a line, fields between tabs: how many distinct URLs were given up to its end, then each link
as a hexadecimal digit for its level and the URL; and last a line of totals. The benchmark reads that from a
process of its own, so neither memory nor processor time of the generator are counted as a frontier's.

crawl        pages of 50 to 100 links: 75 % to the page's own host, most others to hosts by Zipf's law, and
             new hosts until all are found; about 39 % of the links are repeats
random       every link goes to a random host, about 39 % of the links are repeats
sequential   https://h{i mod hosts}.example/page/{i}, no repeats: what published frontiers are measured with
"""

import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

SEED = 7
KINDS = ("crawl", "random", "sequential")
# fmt: off
WORDS = [
    "news", "article", "product", "category", "blog", "archive", "wiki", "topic", "forum", "thread", "story", "review",
    "list", "item", "page", "search", "tag", "media", "video", "photo", "docs", "help", "about", "event",
]
# fmt: on
TOP_LEVELS = ["com", "org", "net", "de", "co.uk", "io", "fr", "ru"]
MIN_LINKS, MAX_LINKS = 50, 100
ZIPF_EXPONENT, ZIPF_OFFSET = 0.9, 3.0
# Of the links of a `crawl` page: to its own host; to a host nobody has linked to yet.
OWN_HOST, NEW_HOST = 0.75, 0.115
# Chance that a link repeats an earlier one to its host.
OWN_REPEATS, POPULAR_REPEATS, RANDOM_REPEATS = 0.42, 0.65, 0.42
FIRST_LEVEL, LEVELS = 6, 4
SEQUENTIAL_PRIORITIES, SEQUENTIAL_LEVELS = 100_000, 15

LEVEL_OF = {f"{level:x}": level for level in range(16)}

Page = list[tuple[int, str]]  # (priority level, URL) of each link


class Totals(NamedTuple):
    """What a whole stream held; `digest` is the sum of the fingerprints of the distinct URLs, modulo 2^64."""

    offered: int
    distinct: int
    hosts: int
    digest: int


def fingerprint(url: str) -> int:
    """64 bits of a URL, for telling whether two sets of URLs are the same by count and sum."""
    return xxh3_64_intdigest(url.encode())


class Stream:
    """Pages of links until `urls` distinct ones were given (and at most a page more)."""

    def __init__(self, kind: str, urls: int, hosts: int) -> None:
        self.kind, self.urls, self.hosts = kind, urls, hosts
        self._links_to = [0] * hosts  # distinct URLs given so far, by host
        self.distinct = 0  # given so far
        self._offered = self._met = self._digest = 0
        self._random = random.Random(SEED)
        self._numpy = np.random.default_rng(SEED)
        self._order: list[int] = self._numpy.permutation(hosts).tolist()  # hosts by popularity, and by discovery

    def pages(self) -> Iterator[Page]:
        """The pages, made as they are asked for."""
        make = {"crawl": self._crawl, "random": self._any, "sequential": self._sequential}[self.kind]
        for page in make():
            self._offered += len(page)
            yield page

    @property
    def totals(self) -> Totals:
        """What was given so far."""
        return Totals(self._offered, self.distinct, sum(map(bool, self._links_to)), self._digest % (1 << 64))

    def _crawl(self) -> Iterator[Page]:
        popular, chance = self._popular(), self._random.random
        while self.distinct < self.urls:
            own, page = next(popular), []
            for _ in range(self._random.randint(MIN_LINKS, MAX_LINKS)):
                kind = chance()
                if kind < OWN_HOST:
                    page.append(self._link(own, OWN_REPEATS, 2))
                elif kind < OWN_HOST + NEW_HOST and self._met < self.hosts:
                    page.append(self._link(self._order[self._met], 0.0, 2))
                    self._met += 1
                else:
                    page.append(self._link(next(popular), POPULAR_REPEATS, 2))
            yield page

    def _any(self) -> Iterator[Page]:
        while self.distinct < self.urls:
            size = self._random.randint(MIN_LINKS, MAX_LINKS)
            hosts: list[int] = self._numpy.integers(0, self.hosts, size).tolist()
            yield [self._link(host, RANDOM_REPEATS, 1) for host in hosts]

    def _sequential(self) -> Iterator[Page]:
        while self.distinct < self.urls:
            page = []
            for i in range(self.distinct, min(self.distinct + MAX_LINKS, self.urls)):
                host = i % self.hosts
                self._links_to[host] += 1
                level = i % SEQUENTIAL_PRIORITIES * SEQUENTIAL_LEVELS // SEQUENTIAL_PRIORITIES
                page.append((level, f"https://h{host}.example/page/{i}"))
                self._digest += fingerprint(page[-1][1])
            self.distinct += len(page)
            yield page

    def _link(self, host: int, repeats: float, skew: int) -> tuple[int, str]:
        """A link to a host: an earlier one with the chance `repeats` (old ones rather, if skew is 2), or a new one."""
        known, chance = self._links_to[host], self._random.random
        if known and chance() < repeats:
            number = int(known * chance() * (chance() if skew == 2 else 1))
        else:
            number = known
            self._links_to[host] = known + 1
            self.distinct += 1
        url = url_of(host, number)
        if number == known:
            self._digest += fingerprint(url)
        return FIRST_LEVEL + len(url) % LEVELS, url

    def _popular(self) -> Iterator[int]:
        """Hosts by Zipf's law."""
        weights = np.cumsum(1.0 / (np.arange(self.hosts) + ZIPF_OFFSET) ** ZIPF_EXPONENT)
        order = np.array(self._order)
        while True:
            yield from order[np.searchsorted(weights, self._numpy.random(100_000) * weights[-1])].tolist()


def url_of(host: int, number: int) -> str:
    """URL `number` of a host: about 85 characters, 0 is the home page."""
    origin = f"https://www.{WORDS[host % 24]}-{host * 7919 % 99999989:x}.{TOP_LEVELS[host % 8]}/"
    if number == 0:
        return origin
    x = (host * 0x9E3779B97F4A7C15 + number * 0xC2B2AE3D27D4EB4F) & 0xFFFFFFFFFFFF
    first, second, third = WORDS[x % 24], WORDS[x // 24 % 24], WORDS[x // 576 % 24]
    fourth, fifth = WORDS[x // 331776 % 24], WORDS[x // 13824 % 24]
    return f"{origin}{first}/{second}-{third}/{fourth}-{fifth}/{x:x}/{number}.html"


class PipedStream:
    """A stream made by a process of its own, which works only while this one reads."""

    def __init__(self, kind: str, urls: int, hosts: int) -> None:
        self._command = [sys.executable, str(Path(__file__).resolve()), kind, str(urls), str(hosts)]
        self.totals = Totals(0, 0, 0, 0)
        self.distinct = 0  # given so far

    def __enter__(self) -> "PipedStream":
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, encoding="ascii")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def batches(self, pages: int) -> Iterator[list[Page]]:
        """Up to `pages` pages at a time; keeps `distinct`, and sets `totals` at the end.

        Raises RuntimeError when the generator fails.
        """
        if self._process.stdout is None:
            raise RuntimeError("the stream is not open")
        while batch := list(islice(self._process.stdout, pages)):
            if batch[-1].startswith("="):
                self.totals = Totals(*map(int, batch.pop()[1:].split()))
            if batch:
                self.distinct = int(batch[-1].partition("\t")[0])
                yield [parsed(line) for line in batch]
        if not self.totals.offered:
            raise RuntimeError("the stream ended early")


def parsed(line: str) -> Page:
    """The page of a line of a stream."""
    return [(LEVEL_OF[link[0]], link[1:]) for link in line[:-1].split("\t")[1:]]


def lines(stream: Stream) -> Iterator[str]:
    """A stream as text, without its totals."""
    for page in stream.pages():
        links = "\t".join([f"{level:x}{url}" for level, url in page])
        yield f"{stream.distinct}\t{links}\n"


def main() -> None:
    kind, urls, hosts = sys.argv[1:]
    stream = Stream(kind, int(urls), int(hosts))
    try:
        sys.stdout.writelines(lines(stream))
        print("=", *stream.totals)
    except BrokenPipeError:
        sys.stderr.close()


if __name__ == "__main__":
    main()
