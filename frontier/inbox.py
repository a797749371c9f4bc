"""Whether the inbox file is the one that belongs to the database beside it.

On SQLite the inbox is a file of its own. If it is deleted, emptied, or put back from another time, the links that
waited in it are gone while their pages count as done, and nothing else would tell. So both files carry the same
number: the inbox in the header of the file, the database in a row.
"""

import secrets

from django.db import connections

from frontier.models import FrontierState
from frontier.router import inbox_alias

NAME = "inbox_id"


def belongs(using: str = "default") -> bool:
    """Whether the inbox is the one that the database knows; both get their number at the first call."""
    alias = inbox_alias(using)
    if alias == using:
        return True
    stored = FrontierState.objects.using(using).filter(name=NAME).values_list("value", flat=True).first()
    if stored is None:
        adopt(using)
        return True
    return int(stored) == _number(alias)


def adopt(using: str = "default") -> None:
    """Takes the inbox as it is for the one of this database."""
    alias = inbox_alias(using)
    number = _number(alias)
    if not number:
        number = 1 + secrets.randbelow((1 << 31) - 2)
        with connections[alias].cursor() as cursor:
            cursor.execute(f"PRAGMA user_version={number}")
    FrontierState.objects.using(using).update_or_create(name=NAME, defaults={"value": number})


def _number(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA user_version")
        return int(cursor.fetchone()[0])
