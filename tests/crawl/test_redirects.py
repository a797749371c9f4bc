"""Redirects: followed by hand, inside the scope, each target once."""

from collections import Counter
from pathlib import Path

from tests.crawl.running import LOCAL, crawl
from tests.scripted import page, redirect, scripted


def test_a_redirect_on_the_same_host_is_the_next_request_of_the_visit(tmp_path: Path) -> None:
    with scripted({"/": page("/old", "/z"), "/old": redirect("/new", 301), "/new": page(), "/z": page()}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert site.paths() == ["/", "/old", "/new", "/z"]
    assert ran.told["status"] == {"200": 3, "301": 1}


def test_a_redirect_target_that_was_fetched_or_is_queued_is_fetched_once(tmp_path: Path) -> None:
    pages = {
        "/": page("/a", "/b", "/c"),
        "/a": redirect("/c"),
        "/b": redirect("/"),
        "/c": page("/d"),
        "/d": redirect("/c"),
    }
    with scripted(pages) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert Counter(site.paths()) == Counter(["/", "/a", "/b", "/c", "/d"])


def test_a_redirect_to_itself_or_in_a_circle_is_told_as_a_loop(tmp_path: Path) -> None:
    pages = {"/": page("/self", "/x"), "/self": redirect("/self"), "/x": redirect("/y"), "/y": redirect("/x")}
    with scripted(pages) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert Counter(site.paths()) == Counter(["/", "/self", "/x", "/y"])
    assert {error["kind"]: error["count"] for error in ran.told["errors"]} == {"redirect-loop": 2}


def test_an_endless_chain_of_redirects_ends(tmp_path: Path) -> None:
    chain = {f"/r/{n}": redirect(f"/r/{n + 1}") for n in range(100)}
    with scripted({"/": page("/r/0"), **chain}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert len(site.paths()) == 12
    assert [error["kind"] for error in ran.told["errors"]] == ["too-many-redirects"]


def test_a_redirect_out_of_scope_is_not_followed(tmp_path: Path) -> None:
    with scripted({"/": page()}) as other, scripted({}) as site:
        site.script = {"/": page("/away"), "/away": redirect(f"{other.url}/")}
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
        assert other.asked == []
    assert [error["kind"] for error in ran.told["errors"]] == ["out-of-scope"]


def test_a_redirect_to_another_host_in_scope_is_a_link_of_the_same_depth(tmp_path: Path) -> None:
    with scripted({"/": page("/deeper"), "/deeper": page("/deepest")}) as other, scripted({}) as site:
        site.script = {"/": redirect(f"{other.url}/")}
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--scope", "any", "--ports", "any", "--depth", "1")
        assert other.paths() == ["/", "/deeper"]


def test_a_location_that_is_no_url_or_blank_is_where_it_ends(tmp_path: Path) -> None:
    pages = {"/": page("/bad", "/blank"), "/bad": redirect("http://[::1"), "/blank": redirect(" ")}
    with scripted(pages) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert Counter(site.paths()) == Counter(["/", "/bad", "/blank"])
    assert [error["kind"] for error in ran.told["errors"]] == ["bad-redirect"]


def test_a_location_with_raw_utf8_bytes_is_read_as_utf8(tmp_path: Path) -> None:
    with scripted({"/%C3%BC": page()}) as site:
        site.script["/"] = redirect("/ü".encode().decode("latin-1"))
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert site.paths() == ["/", "/%C3%BC"]
