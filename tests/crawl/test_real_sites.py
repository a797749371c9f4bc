"""Real documentation sites, against a closure of their links that was worked out apart from the crawler."""

from collections import Counter
from pathlib import Path

import pytest

from tests.closure import closure, normal
from tests.crawl.running import LOCAL, crawl
from tests.site import serve

SITES = {
    "python3.11-doc": Path("/usr/share/doc/python3.11/html"),
    "postgresql-doc-15": Path("/usr/share/doc/postgresql-doc-15/html"),
}


@pytest.mark.parametrize("package", SITES)
def test_every_page_that_links_reach_is_fetched_exactly_once(tmp_path: Path, package: str) -> None:
    folder = SITES[package]
    if not (folder / "index.html").exists():
        pytest.skip(f"Debian's package {package} is not installed")
    truth = closure(folder, "/index.html")
    with serve(folder) as site:
        ran = crawl(tmp_path, f"{site.url}index.html", *LOCAL, timeout=240)
        asked = Counter(normal(path) for path in site.paths() if path != "/robots.txt")
    assert ran.code == 0
    assert set(asked) == truth.pages | truth.files | truth.redirects | truth.missing
    assert set(asked.values()) == {1}
    assert ran.told["pages"] == len(truth.pages) + len(truth.files)
