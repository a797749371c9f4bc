"""Every process that fetches looks for garbage less often than Python does by itself: a fifth of a crawl's time."""

import subprocess
import sys

from tests.crawl.running import LOCAL, environment
from tests.rig import ROOT
from tests.scripted import page, scripted

# Crawls in this process, and tells how the collector was set while a page was parsed.
CRAWL = """
import gc, sys
from crawl.fetch import engine
from trawl_project import cli
seen, discover = [], engine.discover
def looks(*arguments):
    seen.append((gc.get_threshold()[0], gc.get_freeze_count() > 10_000))
    return discover(*arguments)
engine.discover = looks
try:
    cli.run(sys.argv[1:])
finally:
    print(seen)
"""


def test_a_crawl_in_one_process_relaxes_the_collector(tmp_path) -> None:
    with scripted({"/": page()}) as site:
        arguments = ["crawl", f"{site.url}/", *LOCAL, "--no-warc", "--data", str(tmp_path)]
        script = "import os, django; django.setup()\n" + CRAWL
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            cwd=ROOT,
            env=environment() | {"DJANGO_SETTINGS_MODULE": "trawl_project.settings", "TRAWL_DATA": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert "(50000, True)" in done.stdout, done.stdout + done.stderr
