"""An installation and its campaigns, for commands that only look at them."""

from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from crawl.lookup import USAGE, printable
from crawl.models import Campaign
from trawl_project.databases import prepare_databases


def has_database() -> bool:
    """Whether there is an installation. A database server that is named counts as one."""
    database = settings.DATABASES["default"]
    file = str(database["NAME"])
    return "sqlite" not in database["ENGINE"] or file.startswith("file:") or Path(file).exists()


def open_campaign(name: str) -> Campaign:
    """The campaign. An installation that is not there yet is not made for it. Raises CommandError."""
    if not has_database():
        file = settings.DATABASES["default"]["NAME"]
        advice = "start it with: trawl crawl URL, or name another folder with --data DIR"
        raise CommandError(f"there is no campaign '{name}': there is no {file}; {advice}", returncode=USAGE)
    prepare_databases()
    campaign = Campaign.objects.filter(name=printable(name)).first()  # a lone surrogate would be a crash
    if campaign is None:
        names = [
            f"'{printable(other)}'" for other in Campaign.objects.order_by("name").values_list("name", flat=True)[:10]
        ]
        there = f"there are {', '.join(names)}" if names else "there is none yet; start one with: trawl crawl URL"
        raise CommandError(f"there is no campaign '{name}'; {there}", returncode=USAGE)
    return campaign
