"""Times for people: milliseconds since 1970 as they are stored, shown in the current time zone."""

from datetime import UTC, datetime

from django.utils import timezone


def moment(milliseconds: int | None) -> str:
    """A stored time as '2026-11-30 14:05:09', or '-' for none."""
    if not milliseconds:
        return "-"
    when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{timezone.localtime(when):%Y-%m-%d %H:%M:%S}"
