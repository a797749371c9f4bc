"""Which WARC files count as kept."""

from pathlib import Path

import pytest

from crawl.models import WarcFile
from crawl.store.kept import CHECK_SECONDS, KeptFiles

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("content", "is_kept"),
    [(None, False), (b"", False), (b"12", False), (b"123", True), (b"123 and what is not committed", True)],
)
def test_a_file_is_kept_while_all_that_is_committed_of_it_is_there(
    tmp_path: Path, content: bytes | None, is_kept: bool
) -> None:
    row = WarcFile.objects.create(name="a", directory=str(tmp_path), bytes=3)
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    assert KeptFiles().there([row.pk]) == ({row.pk} if is_kept else set())


def test_a_file_without_a_row_is_not_kept() -> None:
    assert KeptFiles().there([1]) == set()


def test_the_disk_is_looked_at_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("crawl.store.kept.time.monotonic", lambda: clock[0])
    row = WarcFile.objects.create(name="a", directory=str(tmp_path), bytes=0)
    (tmp_path / "a").touch()
    files = KeptFiles()
    assert files.there([row.pk]) == {row.pk}
    (tmp_path / "a").unlink()
    clock[0] += CHECK_SECONDS
    assert files.there([row.pk]) == {row.pk}
    clock[0] += 1
    assert files.there([row.pk]) == set()
