"""The numbers that belong to the whole frontier: the hash seed and where its files are."""

import secrets
from functools import cache
from pathlib import Path

from django.conf import settings

from frontier.models import FrontierState


@cache
def hash_seed(using: str = "default") -> int:
    """The seed of all URL hashes of this installation, made once.

    It is secret to the installation so that nobody can publish pages whose URLs collide here.
    """
    row, _ = FrontierState.objects.using(using).get_or_create(
        name="hash_seed", defaults={"value": secrets.randbits(62)}
    )
    return int(row.value)


def seen_directory(using: str = "default") -> Path:
    """Where the run files of the seen index of this shard lie."""
    return Path(settings.DATA_DIR) / "seen" / using
