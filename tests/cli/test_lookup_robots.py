"""trawl robots: the verdict of a robots.txt, the line behind it, and exit codes as grep has them."""

from pathlib import Path

import pytest

from tests.cli.test_lookup_url import call, records, run

RULES = b"""\
\xef\xbb\xbf# for everybody
User-agent: *
Disallow: /private/
Allow: /private/ok
Crawl-delay: 2.5

User-agent: bot
Disallow: /

Sitemap: https://a.test/sitemap.xml
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "robots.txt").write_bytes(RULES)
    return str(tmp_path / "robots.txt")


@pytest.mark.parametrize(
    ("url", "agent", "allowed", "rule", "line", "group"),
    [
        ("http://a.test/private/x", "trawl", False, "Disallow: /private/", 3, "*"),
        ("http://a.test/private/ok", "trawl", True, "Allow: /private/ok", 4, "*"),
        ("/private/x?y", "trawl/1.0", False, "Disallow: /private/", 3, "*"),
        ("/else", "trawl", True, None, None, "*"),
        ("/else", "Bot", False, "Disallow: /", 8, "bot"),
        ("/else", "trawlbot", True, None, None, "*"),  # a token is compared as a whole
        ("/a/../private/x", "trawl", False, "Disallow: /private/", 3, "*"),  # as it would be asked for
        ("/robots.txt", "bot", True, None, None, "bot"),
    ],
)
def test_the_verdict_names_the_line_and_the_group(file, url, agent, allowed, rule, line, group) -> None:
    done = call("robots", file, "--agent", agent, url, "--json")
    _, verdict = records(done)
    assert verdict == {"url": url, "allowed": allowed, "rule": rule, "line": line, "group": group}
    assert done.returncode == (0 if allowed else 1)


def test_what_holds_for_the_file_is_told_once(file: str) -> None:
    about, *verdicts = records(call("robots", file, "/1", "/2", "--json"))
    assert about == {
        "agent": "trawl",
        "group": "*",
        "crawl_delay": 2.5,
        "sitemaps": ["https://a.test/sitemap.xml"],
        "bytes": len(RULES),
        "cut": False,
    }
    assert [verdict["url"] for verdict in verdicts] == ["/1", "/2"]


def test_people_get_the_same_in_words(file: str) -> None:
    done = call("robots", file, "/private/x", "/")
    assert "crawl delay  2.5 s\n" in done.stdout
    assert "disallowed  /private/x  line 3: Disallow: /private/\n" in done.stdout
    assert "allowed     /  no rule of the group speaks of it\n" in done.stdout


def test_as_a_pipe_it_has_a_line_for_each_line_and_the_rest_on_standard_error(file: str) -> None:
    done = call("robots", file, "-", stdin=b"/private/x\nhttp://[\n/ok\n")
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        ["disallowed", "/private/x"],
        ["invalid", "http://["],
        ["allowed", "/ok"],
    ]
    assert "sitemap.xml" in done.stderr
    assert done.returncode == 2


def test_the_file_may_come_from_standard_input(tmp_path: Path) -> None:
    done = run(tmp_path, "robots", "-", "/private/", stdin=RULES)
    assert done.returncode == 1


@pytest.mark.parametrize("body", [b"", b"\0" * 5000, bytes(range(256)) * 40, b"x" * 3_000_000, b"<html>no</html>"])
def test_what_is_no_robots_txt_allows_everything(body: bytes) -> None:
    assert call("robots", "-", "/x", stdin=body).returncode == 0


def test_beyond_500_kib_nothing_counts_and_this_is_said(tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    big.write_bytes(b"User-agent: *\nDisallow: /a\n" + b"# filler\n" * 60_000 + b"Disallow: /b\n")
    done = call("robots", str(big), "/a", "/b")
    assert "disallowed  /a" in done.stdout
    assert "allowed     /b" in done.stdout
    assert "540,040 bytes; only the first 512,000 count" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.txt", "/"], "cannot read missing.txt: No such file"),
        ([".", "/"], "Is a directory"),
        (["\udcff\x01", "/"], "cannot read"),
        (["-", "-"], "cannot be both"),
        (["robots.txt"], "URL"),
        (["robots.txt", "/", "--agent", "5"], "no product token"),
    ],
)
def test_wrong_usage_is_told_in_a_line_with_exit_code_2(words: list[str], says: str) -> None:
    done = call("robots", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""
