"""How runs went over time: a bounded number of samples for each, however long it takes."""

from collections.abc import Iterable

from crawl.fetch.errors import FORBIDDEN_KINDS
from crawl.models import Run, Sample, Tally
from frontier import counts
from frontier.politeness import now_ms

SPACING_MS = 10_000  # of a run's first hour; a longer run is sampled less often
MOST = 720  # of one run; then every second one goes
_CLASSES = {"2": "ok", "3": "moved", "4": "refused", "5": "broken"}


def take() -> None:
    """Samples the runs that run and whose last sample is old enough."""
    now = now_ms()
    for run in Run.objects.filter(state=Run.State.RUNNING, campaign__status="running").select_related("campaign"):
        last = run.samples.order_by("at").last()
        if last is None or now - last.at >= spacing_ms(run):
            sample = _sample(run, now)
            sample.save()
            _thin(run)


def finish(run: Run) -> None:
    """The last sample of a run that ends."""
    _sample(run, now_ms()).save()


def spacing_ms(run: Run) -> int:
    """How far apart the samples of a run are by now."""
    return max(SPACING_MS, run.busy_ms // (MOST // 2))


def _sample(run: Run, now: int) -> Sample:
    tallies: Iterable[tuple[str, int]] = Tally.objects.filter(run=run).values_list("kind", "count")
    sums = dict.fromkeys((*_CLASSES.values(), "failed"), 0)
    for kind, count in tallies:
        if kind.startswith("http-"):
            sums[_CLASSES.get(kind[5:6], "failed")] += count
        elif kind not in FORBIDDEN_KINDS:
            sums["failed"] += count
    waiting = counts.waiting(run.campaign.pk).urls
    return Sample(run=run, at=now, pages=run.pages, bytes=run.bytes, waiting=waiting, **sums)


def _thin(run: Run) -> None:
    ids = list(run.samples.order_by("at").values_list("id", flat=True))
    if len(ids) > MOST:
        Sample.objects.filter(id__in=ids[1:-1:2]).delete()
