"""Pages that did not change: conditions, 304, revisit records that name the record with the body, and what happens when
that record is gone."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crawl.store.records import digest_of
from tests.crawl.installation import Installation
from tests.crawl.running import LOCAL, Ran
from tests.scripted import Answer, Asked, Script, ScriptedSite, page, scripted
from tests.store.archive import Seen, by_warcio

DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
CONDITIONS = ("if-none-match", "if-modified-since")


@dataclass
class Document:
    """A page that answers 304 to whom knows it. `validators`: its headers."""

    text: str
    validators: dict[str, str] = field(default_factory=dict)
    renewed: dict[str, str] = field(default_factory=dict)  # the headers of its 304

    def __call__(self, asked: Asked) -> Answer:
        tag, date = (asked.headers.get(name) for name in CONDITIONS)
        ours = {**self.validators, **self.renewed}
        known = {self.validators.get("ETag"), ours.get("ETag")}
        if tag in known if tag else date and date == ours.get("Last-Modified"):
            return Answer(status=304, headers=self.renewed)
        return Answer(f"<title>{self.text}</title>{self.text}", headers=self.validators)


def site_of(**documents: Document) -> Script:
    """A start page that links to these."""
    return {"/": page(*(f"/{name}" for name in documents)), **{f"/{name}": one for name, one in documents.items()}}


def go(one: Installation, site: ScriptedSite, *arguments: str) -> Ran:
    ran = one.run("crawl", f"{site.url}/", *LOCAL, "--delay", "0", "--name", "site", "--json", *arguments)
    assert ran.code == 0, ran.err
    return ran


def go_again(one: Installation, site: ScriptedSite) -> dict[str, tuple[str | None, ...]]:
    """Asks for everything again; returns the conditions that were sent, by path."""
    before = len(site.asked)
    go(one, site, "--again")
    return {asked.path: tuple(map(asked.headers.get, CONDITIONS)) for asked in site.asked[before:]}


def records(one: Installation, path: str) -> list[Seen]:
    """The responses and revisits of a path, in their order, as an independent reader has them."""
    seen = [record for file in sorted(one.data.glob("warc/*/*.warc.gz")) for record in by_warcio(file)]
    responses, revisits = ([record for record in seen if record.type == kind] for kind in ("response", "revisit"))
    by_moment = {(response.warc["warc-target-uri"], response.warc["warc-date"]): response for response in responses}
    for revisit in revisits:
        original = by_moment[revisit.warc["warc-refers-to-target-uri"], revisit.warc["warc-refers-to-date"]]
        assert original.warc["warc-payload-digest"] == revisit.warc["warc-payload-digest"]
        assert original.warc["warc-target-uri"] == revisit.warc["warc-target-uri"]
        assert original.payload
        assert not revisit.payload
    mine = [record for record in seen if record.warc.get("warc-target-uri", "").endswith(path)]
    return [record for record in mine if record.type in ("response", "revisit")]


def kinds(one: Installation, path: str) -> list[str]:
    return [record.warc.get("warc-profile", record.type).rpartition("/")[2] for record in records(one, path)]


def row(one: Installation, path: str, names: str) -> tuple[object, ...]:
    [found] = one.rows(f"SELECT {names} FROM crawl_page WHERE ref LIKE '%{path}'")
    return found


def delete_archive(one: Installation) -> None:
    for file in one.data.glob("warc/*/*.warc.gz"):
        file.unlink()


def keep_responses(one: Installation, keep: bool) -> None:
    with closing(sqlite3.connect(one.data / "trawl.sqlite3")) as database:
        database.execute("UPDATE crawl_campaign SET store_warc = ?", [keep])
        database.commit()


@pytest.fixture
def one(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "data")


def test_each_run_asks_by_what_it_knows_and_revisits_name_the_record_with_the_body(one: Installation) -> None:
    both = Document("both", {"ETag": '"both"', "Last-Modified": DATE})
    script = site_of(
        tag=Document("tag", {"ETag": 'W/"tag"'}),
        date=Document("date", {"Last-Modified": DATE}),
        both=both,
        plain=Document("plain"),
        bad=Document("bad", {"ETag": "unquoted", "Last-Modified": "yesterday"}),
        new=Document("new", {"ETag": '"old"'}, renewed={"ETag": '"new"', "Last-Modified": DATE}),
        more=Document("more", {"Last-Modified": DATE}, renewed={"ETag": '"more"'}),
    )
    with scripted(script) as site:
        go(one, site)
        assert not any(set(CONDITIONS) & set(asked.headers) for asked in site.asked)
        content = "title, digest, length, content_type, changed_at, payload_at, status"
        before = {path: row(one, path, content) for path in script}
        second, third = go_again(one, site), go_again(one, site)

        expected = {
            "/tag": ('W/"tag"', None),
            "/date": (None, DATE),
            "/both": ('"both"', DATE),
            "/plain": (None, None),
            "/bad": (None, None),
            "/new": ('"old"', None),  # and its 304 speaks of another body than the one that is kept
            "/more": (None, DATE),
        }
        assert {path: second[path] for path in expected} == expected
        assert {path: third[path] for path in expected} == expected | {"/more": ('"more"', DATE)}
        assert {path: row(one, path, content) for path in script} == before
        assert row(one, "/both", "title, length, status") == ("both", len("<title>both</title>both"), 200)
        assert row(one, "/new", "etag, last_modified") == ('"old"', "")
        assert row(one, "/bad", "etag, last_modified") == ("", "")
        for path in ("/tag", "/date", "/both", "/new", "/more"):
            assert kinds(one, path) == ["response", "server-not-modified", "server-not-modified"]
        for path in ("/plain", "/bad"):
            assert kinds(one, path) == ["response", "identical-payload-digest", "identical-payload-digest"]
        first, *later = records(one, "/both")
        told = one.run("url", f"{site.url}/both", "--campaign", "site", "--json").told
        where = (told["page"]["kept"][name] for name in ("offset", "at"))
        assert tuple(where) == (first.offset, first.warc["warc-date"])
        assert {revisit.warc["warc-refers-to-date"] for revisit in later} == {first.warc["warc-date"]}
        assert all(revisit.status == "HTTP/1.1 304 Not Modified" for revisit in later)
        assert records(one, "/plain")[1].status == "HTTP/1.1 200 OK"

        both.text, both.validators = "changed", {"ETag": '"changed"'}
        assert go_again(one, site)["/both"] == ('"both"', DATE)
        assert go_again(one, site)["/both"] == ('"changed"', None)
        assert kinds(one, "/both")[3:] == ["response", "server-not-modified"]
        *_, changed, last = records(one, "/both")
        assert last.warc["warc-refers-to-date"] == changed.warc["warc-date"]
        assert row(one, "/both", "title, digest") == ("changed", digest_of(changed.payload))
        assert one.unreadable() == 0


def test_an_archive_that_was_deleted_is_filled_again(one: Installation) -> None:
    script = site_of(both=Document("both", {"ETag": '"1"', "Last-Modified": DATE}), plain=Document("plain"))
    with scripted(script) as site:
        go(one, site)
        go_again(one, site)
        delete_archive(one)
        assert set(go_again(one, site).values()) == {(None, None)}
        assert (kinds(one, "/both"), kinds(one, "/plain")) == (["response"], ["response"])
        assert go_again(one, site)["/both"] == ('"1"', DATE)
        assert kinds(one, "/both") == ["response", "server-not-modified"]
        assert kinds(one, "/plain") == ["response", "identical-payload-digest"]


def test_bodies_that_were_not_kept_are_fetched_once_more_when_they_are_to_be(one: Installation) -> None:
    script = site_of(tag=Document("tag", {"ETag": '"1"'}), plain=Document("plain"))
    with scripted(script) as site:
        go(one, site, "--no-warc")
        assert go_again(one, site)["/tag"] == ('"1"', None)  # what is known of it is all that is kept
        assert row(one, "/tag", "title, status, payload_at") == ("tag", 200, None)
        keep_responses(one, True)
        assert go_again(one, site)["/tag"] == (None, None)
        assert (kinds(one, "/tag"), kinds(one, "/plain")) == (["response"], ["response"])
        changed_at = row(one, "/plain", "changed_at")
        keep_responses(one, False)
        assert go_again(one, site)["/tag"] == ('"1"', None)
        assert row(one, "/plain", "changed_at") == changed_at
        keep_responses(one, True)
        assert go_again(one, site)["/tag"] == ('"1"', None)
        assert kinds(one, "/tag") == ["response", "server-not-modified"]
        assert kinds(one, "/plain") == ["response", "identical-payload-digest"]


def test_a_304_that_nobody_asked_for_renews_nothing(one: Installation) -> None:
    fine = Document("fine", {"ETag": '"1"'})
    with scripted(site_of(a=fine)) as site:
        go(one, site)
        delete_archive(one)
        site.script["/a"] = Answer(status=304, headers={"ETag": '"2"'})
        assert go_again(one, site)["/a"] == (None, None)
        assert row(one, "/a", "title, error, etag") == ("fine", "bad-http", '"1"')
        assert kinds(one, "/a") == ["response"]  # the 304 itself: there is no body that it could point to
        site.script["/a"] = fine
        assert go_again(one, site)["/a"] == (None, None)
        assert row(one, "/a", "title, error, status") == ("fine", "", 200)
        assert kinds(one, "/a") == ["response", "response"]


def test_only_pages_leave_validators(one: Installation) -> None:
    gone = Answer("gone", 410, {"ETag": '"1"', "Last-Modified": DATE})
    with scripted({"/": page("/gone"), "/gone": gone}) as site:
        go(one, site)
        assert go_again(one, site)["/gone"] == (None, None)
        assert kinds(one, "/gone") == ["response", "response"]


def test_what_was_odd_about_an_encoding_is_told_and_stored(one: Installation) -> None:
    odd = Document("<a href=/found>x</a>", {"ETag": '"1"', "Content-Encoding": "gzip"})
    with scripted({"/": odd, "/found": page()}) as site:
        go(one, site)
        note = "Content-Encoding: gzip, but the body is not so encoded; it was read as it came"
        assert "/found" in site.paths()
        assert row(one, "/", "status, error, detail") == (200, "", note)
        assert row(one, "/found", "detail") == ("",)
        stored = b"".join(record.payload for file in one.data.glob("warc/*/*.gz") for record in by_warcio(file))
        assert stored.count(f"note: {note}\r\n".encode()) == 1
        assert go_again(one, site)["/"] == ('"1"', None)
        assert row(one, "/", "detail") == (note,)  # after a 304 too
        told = one.run("url", f"{site.url}/", "--campaign", "site")
    assert [line.split(None, 1)[1] for line in told.out.splitlines() if line.startswith("note ")] == [note]
