"""trawl links: what the parser finds in a saved page."""

import base64
import json
from pathlib import Path

import pytest

from tests.cli.test_lookup_url import call, records, run

PAGE = """<!doctype html><title> Tülips &amp;
 co</title><base href="/docs/"><meta name=robots content="noindex"><link rel=canonical href="/docs/tulips">
<a
href="a?b=1&amp;a=2#x">a</a><a rel="ugc" href=" ../b ">b</a><a href="http://[x/">c</a><area href="x.html">
<a href="javascript:void(0)">d</a>"""
AT = "http://a.test/index.html"


def test_a_page_is_told_with_all_its_links() -> None:
    (page,) = records(call("links", "-", "--url", AT, "--json", stdin=PAGE.encode()))
    links = page.pop("links")
    assert page == {
        "url": AT,
        "is_html": True,
        "bytes": len(PAGE.encode()),
        "cut": False,
        "encoding": "utf-8",
        "title": "Tülips & co",
        "base": "http://a.test/docs/",
        "canonical": "/docs/tulips",
        "noindex": True,
        "nofollow": False,
        "truncated": False,
    }
    assert [(link["kind"], link["href"], link["absolute"], link["canonical"], link["nofollow"]) for link in links] == [
        ("link-canonical", "/docs/tulips", "http://a.test/docs/tulips", "http://a.test/docs/tulips", False),
        ("a", "a?b=1&a=2#x", "http://a.test/docs/a?b=1&a=2", "http://a.test/docs/a?a=2&b=1", False),
        ("a", "../b", "http://a.test/b", "http://a.test/b", True),
        ("a", "http://[x/", None, None, False),
        ("area", "x.html", "http://a.test/docs/x.html", "http://a.test/docs/x.html", False),
    ]
    assert "closing bracket" in links[3]["refused"]


def test_people_get_a_line_for_each_link(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    done = run(tmp_path, "links", "page.html", "--url", AT)
    assert "title      Tülips & co\n" in done.stdout
    assert "a?b=1&a=2#x -> http://a.test/docs/a?b=1&a=2 = http://a.test/docs/a?a=2&b=1\n" in done.stdout
    assert "refused: IPv6 address" in done.stdout


@pytest.mark.parametrize(
    ("content_type", "encoding", "title"),
    [
        ("text/html; charset=cp1251", "windows-1251", "Привет"),
        ("text/html", "windows-1252", "Ïðèâåò"),
    ],
)
def test_the_encoding_comes_from_the_content_type(content_type, encoding, title) -> None:
    body = "<title>Привет</title>".encode("cp1251")
    done = call("links", "-", "--url", AT, "--content-type", content_type, "--json", stdin=body)
    (page,) = records(done)
    assert (page["encoding"], page["title"]) == (encoding, title)


def test_what_a_crawl_would_not_look_into_is_told() -> None:
    done = call("links", "-", "--url", AT, "--content-type", "image/png", stdin=b"\x89PNG\r\n\0\xff")
    assert "it is no HTML" in done.stdout
    assert done.returncode == 0


def test_many_pages_come_as_lines_of_json_and_a_bad_line_costs_only_itself() -> None:
    lines: list[bytes] = [
        json.dumps({"url": AT, "html": "<a href='é'>"}).encode(),
        json.dumps({"url": AT, "content_type": "text/html; charset=gb2312", "base64": gbk()}).encode(),
        b"junk \xff\0",
        b"[" * 100_000,
        b"[1]",
        b"{}",
        json.dumps({"url": "no url", "html": ""}).encode(),
        json.dumps({"url": AT, "html": "\ud800<a href=x>"}).encode(),
        json.dumps({"url": AT, "base64": "!"}).encode(),
        json.dumps({"url": AT}).encode(),
    ]
    done = call("links", "-", "--json", stdin=b"\n".join(lines))
    found = records(done)
    assert [record.get("line") for record in found] == [None, None, 3, 4, 5, 6, 7, None, 9, 10]
    assert found[0]["links"][0]["absolute"] == "http://a.test/%C3%A9"
    assert found[1]["title"] == "镕"
    assert found[7]["links"][0]["href"] == "x"
    assert done.returncode == 1


def gbk() -> str:
    return base64.b64encode("<title>镕</title>".encode("gbk")).decode()


@pytest.mark.parametrize("body", [b"", b"\0" * 100_000, bytes(range(256)) * 100, b"<a href='" + b"y" * 300_000])
def test_any_bytes_are_a_page(body: bytes) -> None:
    assert call("links", "-", "--url", AT, stdin=body).returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.html", "--url", AT], "cannot read missing.html: No such file"),
        (["missing.jsonl"], "cannot read missing.jsonl: No such file"),
        ([".", "--url", AT], "Is a directory"),
        (["-", "--url", "nonsense"], "--url is not usable"),
        (["-", "--content-type", "text/html"], "give its --url"),
        ([], "FILE"),
    ],
)
def test_wrong_usage_is_told_in_a_line_with_exit_code_2(words: list[str], says: str) -> None:
    done = call("links", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""
