"""The pages that links reach in a folder of static files, worked out apart from the crawler.

Only the standard library, and nothing of trawl: what both get wrong alike would go unseen. Serving is
that of http.server (tests/site.py): a folder without its slash answers 301, a folder is its index.html,
else a listing; a query does not choose the file but makes another URL. Followed: a, area, link rel=next,
prev, canonical, alternate, iframe, frame, meta refresh; base href counts; rel=nofollow and a robots meta
are obeyed unless told otherwise. Symbolic links are followed, `.gz` files are files like any other.

    python tests/closure.py DIR --start /index.html --url http://127.0.0.1:8000/
"""

import argparse
import mimetypes
import os
import re
import sys
from collections import deque
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

HOST = "http://closure.invalid"  # stands for the server; links that name another host are outside
LINK_RELS = {"next", "prev", "canonical", "alternate"}
PATH_SAFE = "/:@!$&'()*+,;="
UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
HTML_TYPES = {"text/html", "application/xhtml+xml"}


@dataclass
class Closure:
    """URLs as path[?query], each in exactly one of the sets."""

    pages: set[str] = field(default_factory=set)  # answer 200, HTML
    files: set[str] = field(default_factory=set)  # answer 200, something else
    redirects: set[str] = field(default_factory=set)  # a folder without its slash: 301
    missing: set[str] = field(default_factory=set)  # 404
    outside: int = 0  # links to other hosts

    @property
    def found(self) -> set[str]:
        """What answers 200."""
        return self.pages | self.files


def closure(root: Path, start: str = "/", *, base_url: str = "", query: str = "keep", nofollow: bool = True) -> Closure:
    """Everything reachable from `start`; links to `base_url` are links to this server too."""
    result = Closure()
    own = {HOST, origin(base_url)} if base_url else {HOST}
    first = normal(start, query)
    seen, waiting = {first}, deque([first])
    while waiting:
        url = waiting.popleft()
        kind, content = answer(root, url)
        {"page": result.pages, "file": result.files, "redirect": result.redirects}.get(kind, result.missing).add(url)
        if kind == "redirect":
            targets = [HOST + content]
        elif kind == "page":
            targets = links(content, HOST + url, nofollow=nofollow)
        else:
            targets = []
        for target in targets:
            if origin(target) not in own:
                result.outside += target.startswith(("http:", "https:"))
                continue
            parts = urlsplit(target)
            path = normal(urlunsplit(("", "", parts.path or "/", parts.query, "")), query)
            if path not in seen:
                seen.add(path)
                waiting.append(path)
    return result


def origin(url: str) -> str:
    """scheme://host:port in lower case, without a port that is the scheme's own; "" for what has none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # http://[broken/ or a port that is no number
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ""
    own_port = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port not in (None, own_port) else "")


def normal(url: str, query: str = "keep") -> str:
    """path[?query] with one spelling: %7e is ~, %c3 is %C3, a space is %20; fragment and dots go."""
    parts = urlsplit(url)
    path = without_dots(escape(parts.path, PATH_SAFE))  # in this order: `%2e%2e` is a dot segment too
    return path + (f"?{escape(parts.query, PATH_SAFE + '?')}" if parts.query and query == "keep" else "")


def without_dots(path: str) -> str:
    """RFC 3986 5.2.4, which urljoin leaves out when the reference is an absolute URL."""
    kept: list[str] = []
    words = path.split("/")[1:]
    for word in words:
        if word == "..":
            del kept[-1:]
        elif word != ".":
            kept.append(word)
    return "/" + "/".join([*kept, ""] if words and words[-1] in (".", "..") and kept else kept)


def escape(text: str, safe: str) -> str:
    def one(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return character if character in UNRESERVED else match[0].upper()

    text = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", text)
    return re.sub(r"%([0-9A-Fa-f]{2})", one, quote(text, safe=safe + "%"))


# --- the server's part --------------------------------------------------------------------------------


def answer(root: Path, url: str) -> tuple[str, str]:
    """What http.server says to `url`: ("page", text), ("file", ""), ("redirect", path) or ("missing", "")."""
    path = url.partition("?")[0]
    words = [word for word in unquote(path, errors="surrogatepass").split("/") if word not in ("", ".", "..")]
    place = root.joinpath(*words)
    if any("\0" in word for word in words):
        return "missing", ""
    if place.is_dir():
        if not path.endswith("/"):
            query = url.partition("?")[2]
            return "redirect", f"{path}/" + (f"?{query}" if query else "")
        for name in ("index.html", "index.htm"):
            if (place / name).is_file():
                return "page", decode((place / name).read_bytes())
        return "page", listing(place)
    # A file with a slash behind it is no file.
    if path.endswith("/") or not place.is_file() or not os.access(place, os.R_OK):
        return "missing", ""
    kind, encoding = mimetypes.guess_type(place.name)
    if encoding is None and kind in HTML_TYPES:
        return "page", decode(place.read_bytes())
    return "file", ""


def listing(folder: Path) -> str:
    """The links of the page that http.server makes for a folder."""
    names = [name + ("/" if (folder / name).is_dir() else "") for name in os.listdir(folder)]
    return "".join(f'<a href="{quote(name, errors="surrogatepass")}">' for name in names)


def decode(body: bytes) -> str:
    if body.startswith(b"\xef\xbb\xbf"):
        return body[3:].decode("utf-8", "replace")
    label = re.search(rb"""charset\s*=\s*["']?\s*([-\w]+)""", body[:1024], re.IGNORECASE)
    try:
        return body.decode(label[1].decode() if label else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


# --- the page's part ----------------------------------------------------------------------------------


class Links(HTMLParser):
    """Collects what a page names, as written; `base` and `nofollow` as the page says."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, bool]] = []  # reference, carries rel=nofollow
        self.base: str | None = None
        self.nofollow = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values: dict[str, str] = {}
        for name, value in attrs:  # the first of a repeated attribute counts
            values.setdefault(name, value or "")
        rel = set(values.get("rel", "").lower().split())
        is_link = tag == "link" and rel & LINK_RELS and "stylesheet" not in rel
        if (tag in ("a", "area") or is_link) and "href" in values:
            self.found.append((values["href"], "nofollow" in rel))
        elif tag in ("iframe", "frame") and "src" in values:
            self.found.append((values["src"], False))
        elif tag == "base" and "href" in values and self.base is None:
            self.base = values["href"]
        elif tag == "meta":
            self.meta(values)

    def meta(self, values: dict[str, str]) -> None:
        content = values.get("content", "")
        if values.get("http-equiv", "").strip().lower() == "refresh":
            target = re.match(r"\s*[\d.]+\s*[;,\s]\s*(?:url\s*=\s*)?(.*)", content, re.IGNORECASE | re.DOTALL)
            if target and target[1].strip():
                quoted = re.match(r"""(["'])(.*?)(?:\1|$)""", target[1].strip(), re.DOTALL)
                self.found.append((quoted[2] if quoted else target[1], False))
        elif values.get("name", "").strip().lower() == "robots":
            words = set(re.split(r"[,\s]+", content.lower()))
            self.nofollow = self.nofollow or bool(words & {"nofollow", "none"})


def links(text: str, url: str, *, nofollow: bool = True) -> list[str]:
    """The absolute URLs that the page `text` at `url` links to."""
    parser = Links()
    parser.feed(text)
    parser.close()
    if nofollow and parser.nofollow:
        return []
    base = join(url, parser.base) if parser.base else url
    joined = (join(base or url, written) for written, marked in parser.found if not (nofollow and marked))
    return [target for target in joined if target]


def join(base: str, reference: str) -> str:
    """urljoin as a browser does it: trimmed, no tabs and newlines, backslashes are slashes; "" if broken."""
    reference = re.sub(r"[\t\r\n]", "", reference.strip("".join(map(chr, range(33)))))
    path: str = re.split("[?#]", reference, maxsplit=1)[0]
    try:
        return urljoin(base, path.replace("\\", "/") + reference[len(path) :])
    except ValueError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", type=Path, metavar="DIR")
    parser.add_argument("--start", default="/", metavar="PATH")
    parser.add_argument("--url", default="", help="what stands before the printed paths, and is the same host")
    parser.add_argument("--query", choices=["keep", "drop"], default="keep")
    parser.add_argument("--follow-nofollow", action="store_true", help="follow rel=nofollow and robots metas too")
    parser.add_argument("--kind", choices=["found", "pages", "files", "redirects", "missing"], default="found")
    options = parser.parse_args()
    if not options.root.is_dir():
        parser.error(f"{options.root} is no folder")
    result = closure(
        options.root,
        options.start,
        base_url=options.url,
        query=options.query,
        nofollow=not options.follow_nofollow,
    )
    for path in sorted(getattr(result, options.kind)):
        print(options.url.rstrip("/") + path)
    counts = {name: len(getattr(result, name)) for name in ("pages", "files", "redirects", "missing")}
    print(", ".join(f"{count} {name}" for name, count in counts.items()), file=sys.stderr)


if __name__ == "__main__":
    main()
