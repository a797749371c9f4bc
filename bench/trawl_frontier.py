"""trawl's own frontier under the benchmark: the calls that a crawl makes, and nothing else."""

import os
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import django


def set_up_django(data: Path) -> None:
    """Points Django at a fresh data directory and at SQLite, whatever the environment of the user says."""
    for name in [name for name in os.environ if name.startswith(("TRAWL_", "DATABASE_URL", "BROKER_URL"))]:
        del os.environ[name]
    os.environ["TRAWL_DATA"] = str(data)
    os.environ["DJANGO_SETTINGS_MODULE"] = "trawl_project.settings"
    django.setup()


class TrawlFrontier:
    """Admission, merge, claim and completion as crawl/record.py and crawl/tasks.py call them."""

    def __init__(self, data: Path) -> None:
        set_up_django(data)
        from bench.design import CAMPAIGN, HASH_SEED, POLITE_MS
        from django.core.management import call_command
        from django.conf import settings
