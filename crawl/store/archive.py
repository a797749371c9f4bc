"""The WARC files of the running campaigns, and which part of them the database has committed."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from crawl.fetch.target import Outcome
from crawl.models import Campaign, WarcFile
from crawl.rows import Stored
from crawl.store.kept import Payload, kept_files
from crawl.store.records import Exchange, digest_of
from crawl.store.warc import WarcWriter, repair
from trawl_project.version import AGENT, VERSION

if TYPE_CHECKING:
    from crawl.record import Record


class Archive:
    """One WARC writer per campaign. Belongs to the writer thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writers: dict[int, WarcWriter] = {}
        self._ids: dict[str, int] = {}
        self._grown: dict[str, tuple[int, str]] = {}

    def store(self, records: Sequence["Record"], stored: dict[int, Stored]) -> None:
        """Writes the answers of those records whose campaign keeps them, and syncs the files.

        `stored` comes to tell by the record's place in the list where its response record lies; what it has
        already is not written again, so that the same call goes on after an OSError.
        """
        used: dict[int, WarcWriter] = {}
        for place, record in enumerate(records):
            plan = record.outcome.target.plan
            if not is_kept(record):
                continue
            writer = used[plan.campaign] = self._writer(plan.campaign)
            if place in stored:
                continue
            stored[place] = self._write(writer, record)
        for campaign, writer in used.items():
            try:
                grown = writer.flush(sync=True)
            except OSError:
                # What was not synced may be gone: it is written again, to another file.
                for place, record in enumerate(records):
                    if record.outcome.target.plan.campaign == campaign:
                        stored.pop(place, None)
                raise
            for name, size in grown.items():
                self._grown[name] = (size, str(self._folder(campaign)))

    def _write(self, writer: WarcWriter, record: "Record") -> Stored:
        outcome = record.outcome
        assert outcome.response is not None
        exchange, known, payload = exchange_of(record), outcome.target.known, kept_payload(outcome)
        if known and payload:
            where = writer.write_revisit(exchange, known.digest, exchange.url, moment(payload.at))
        else:
            where = writer.write(exchange)
        warc = self._id(where.file, outcome.target.plan.campaign)
        return Stored(warc, where.offset, where.digest, payload or Payload(warc, outcome.response.sent_ms))

    def _writer(self, campaign: int) -> WarcWriter:
        writer = self._writers.get(campaign)
        if writer is None:
            row = Campaign.objects.get(id=campaign)
            info = {"software": f"{AGENT}/{VERSION}", "isPartOf": row.name, "operator": row.contact}
            prefix = slug(row.name)
            writer = WarcWriter(self._folder(campaign), prefix, info={k: v for k, v in info.items() if v})
            self._writers[campaign] = writer
        return writer

    def _folder(self, campaign: int) -> Path:
        return self.directory / str(campaign)

    def _id(self, name: str, campaign: int) -> int:
        if name not in self._ids:
            row, _ = WarcFile.objects.get_or_create(name=name, defaults={"directory": str(self._folder(campaign))})
            self._ids[name] = row.pk
        return self._ids[name]

    def save_positions(self) -> None:
        """Stores how much of each file is in use, in the caller's transaction."""
        for name, (size, _) in self._grown.items():
            WarcFile.objects.filter(name=name).update(bytes=size)

    def committed(self) -> None:
        """The positions are safe."""
        self._grown.clear()

    def close(self) -> None:
        """Closes all files; later ones are new files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


def kept_payload(outcome: Outcome) -> Payload | None:
    """The record that holds the body of an answer already: of a 304, and of a page that came again as it was."""
    known, response = outcome.target.known, outcome.response
    if outcome.error or response is None or known is None or known.payload is None:
        return None
    is_same = response.status == 304 or (
        response.status == 200 and bool(response.body) and digest_of(response.body) == known.digest
    )
    return known.payload if is_same and kept_files.there([known.payload.warc]) else None


def moment(ms: int) -> datetime:
    """WARC-Date of a fetch; a revisit record must name that of its original to the millisecond."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def is_kept(record: "Record") -> bool:
    """Whether an answer goes into a WARC file."""
    response = record.outcome.response
    return record.outcome.target.plan.warc and response is not None and bool(response.lines)


def exchange_of(record: "Record") -> Exchange:
    """The request and response of a record, as they go into a WARC file."""
    outcome, response = record.outcome, record.outcome.response
    assert response is not None
    took = int((response.ended_at - response.sent_at) * 1000)
    metadata = {"fetchTimeMs": str(took), "depth": str(outcome.target.depth)}
    if record.discovery.note:
        metadata["note"] = record.discovery.note
    return Exchange(
        url=response.url,
        started_at=moment(response.sent_ms),
        address=response.address or None,
        request=outcome.request_head,
        status_line_and_headers=response.head,
        body=response.body,
        truncated=response.truncated,
        metadata=metadata,
    )


def slug(name: str) -> str:
    """A campaign's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "campaign"


def repair_all() -> list[str]:
    """Cuts off what a kill left in WARC files beyond their committed size.

    Only for a start that knows that no writer is alive. Returns a sentence for every file that lacks
    committed records: those are lost, and nothing here can bring them back.
    """
    damage = []
    for row in WarcFile.objects.filter(closed=False):
        path = Path(row.directory) / row.name
        try:
            repair(path, row.bytes)
        except OSError as error:
            damage.append(f"{path}: {error.strerror or error}")
        row.closed = True
        row.save(update_fields=["closed"])
    return damage
