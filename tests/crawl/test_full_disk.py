"""A disk that fills up: told, waited out, and nothing lost. The disk is a small tmpfs, which needs root."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crawl.running import LOCAL, command, crawl, environment
from tests.rig import ROOT, wait_until
from tests.scripted import page, scripted

PAGES = 80


def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    path.mkdir()
    size = ("-o", f"size={megabytes}m")
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", *size, "tmpfs", str(path)], check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from small_disk(tmp_path / "disk", 330)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    yield from small_disk(tmp_path / "disk", 20)


def test_a_crawl_waits_for_room_and_loses_nothing(disk: Path) -> None:
    filler = disk / "filler"
    names = [f"/{number}" for number in range(PAGES)]
    with scripted({"/": page(*names), **{name: page(head="x" * 20_000) for name in names}}) as site:
        words = [*command(disk / "data", f"{site.url}/", *LOCAL), "--delay", "0.05"]
        with subprocess.Popen(
            words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            wait_until(lambda: len(site.asked) > 10)
            with open(filler, "wb", buffering=0) as file, suppress(OSError):
                while file.write(b"\0" * (1 << 20)):
                    pass
            time.sleep(7)
            assert process.poll() is None
            filler.unlink()
            out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    assert "waits for room on the disk" in err
    assert json.loads(out)["pages"] == PAGES + 1
    assert set(site.paths()) == {"/", *names}
    assert len(site.paths()) == PAGES + 1  # nothing is asked for twice


def test_a_crawl_does_not_start_without_room(tiny_disk: Path) -> None:
    with scripted({"/": page()}) as site:
        ran = crawl(tiny_disk / "data", f"{site.url}/", *LOCAL)
    assert ran.code == 1
    assert "no room on the disk" in ran.err
    assert "256 MB" in ran.err
    assert site.asked == []
