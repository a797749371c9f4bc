"""Room on the disk of the data directory: too little is told and waited out, before a write fails."""

import shutil

from django.conf import settings

# So little that a write may fail soon: nothing new is begun.
MIN_FREE_BYTES = 256 * 1024 * 1024


def shortage() -> str:
    """What is missing, as a part of a sentence; '' where there is room enough."""
    free = shutil.disk_usage(settings.DATA_DIR).free
    if free >= MIN_FREE_BYTES:
        return ""
    return f"room on the disk of {settings.DATA_DIR}: {free >> 20} MB are free, {MIN_FREE_BYTES >> 20} MB are needed"
