"""Changes of the domain blocks, and the marks on hosts that follow them.

Every change raises `blocks_version` first and keeps that row locked until the commit: so row ids and versions
become visible in their order, and no mark is made by a verdict that is not true any more. What waits on a
blocked host stays where it is; nothing of it is claimed (frontier/purge.py takes it away).

A few blocks find the hosts below them by one scan of the names, 0.3 s for a million. For many, a walk is noted
(`blocks_walk`): it takes all hosts in key order, a few thousand to a transaction, and goes on after a kill.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.dispatch import Signal
from django.utils import timezone

from frontier.blocks import covering
from frontier.models import BlockChange, DomainBlock, FrontierState
from frontier.politeness import now_ms
from frontier.schedule import activate
from frontier.sql import dialect

VERSION, WALK, LIFTED = "blocks_version", "blocks_walk", "blocks_lifted_ms"
# Domains whose hosts are looked for by name.
FEW = 20
# Hosts in one transaction of a walk: 20 to 50 ms.
HOSTS = 2_000
# Steps of a walk in one sweep.
SWEEP_STEPS = 20
# How far the clocks of a fleet may differ: so long after its end a block is looked at once more.
CLOCK_SKEW_MS = 60_000
# The hosts that may have to be released, each half along a partial index of its own.
MARKED = ("blocked", "reason = 'blocked' AND NOT blocked")

# Sent in the transaction in which blocks end: using. Whoever left links out for them learns it here.
lifted = Signal()


class Added(NamedTuple):
    """What `block` did: domains that are blocked only now, and those that were already."""

    added: int
    known: int


# --- changes ---------------------------------------------------------------------------------------------------


def block(
    domains: Sequence[str], reason: str = "", expires_at: datetime | None = None, using: str = "default"
) -> Added:
    """Blocks domains in their canonical form (frontier.blocklists.parse_domain), in one transaction.

    Blocks in force keep their reason and their end; one that has expired begins anew with these. More than
    FEW domains leave the marks to a walk.
    """
    distinct = sorted(set(domains))
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        version = _next_version(using)
        now = timezone.now()
        cursor.execute(
            "INSERT INTO frontier_domainblock(domain, reason, expires_at, created_at) SELECT domain, %s, %s, %s"
            f" FROM {dialect(using).rows('domain text')} wanted WHERE true ON CONFLICT (domain) DO UPDATE"
            " SET reason = excluded.reason, expires_at = excluded.expires_at"
            " WHERE frontier_domainblock.expires_at <= excluded.created_at",
            [reason, *(_adapted(moment, using) for moment in (expires_at, now)), dialect(using).pack(distinct)],
        )
        added = cursor.rowcount
        if added:
            _record(version, added, 0, using)
            _bring_in_line(distinct, "NOT blocked", using)
    return Added(added, len(distinct) - added)


def unblock(domains: Sequence[str], using: str = "default") -> int:
    """Removes the blocks of these very domains, in one transaction; returns how many there were.

    What another block covers stays blocked.
    """
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        version = _next_version(using)
        cursor.execute(
            "DELETE FROM frontier_domainblock WHERE domain IN"
            f" (SELECT domain FROM {dialect(using).rows('domain text')} gone)",
            [dialect(using).pack(domains)],
        )
        removed = int(cursor.rowcount)
        if removed:
            _record(version, 0, removed, using)
            _release_below(domains, using)
            lifted.send(None, using=using)
    return removed


def before_change(sender: Any, instance: DomainBlock, using: str, **kwargs: Any) -> None:
    """Before a block is saved or deleted by itself. Raises ValueError where a saved block changes its domain."""
    version = _next_version(using)
    stored = DomainBlock.objects.using(using).filter(pk=instance.pk).values_list("domain", flat=True).first()
    if "origin" not in kwargs and stored not in (None, instance.domain):
        raise ValueError(f"the block of {stored} cannot become one of {instance.domain}: delete it and make another")
    instance._version = version  # type: ignore[attr-defined]


def after_save(sender: Any, instance: DomainBlock, using: str, **kwargs: Any) -> None:
    """Brings the marks in line after a block was saved; in its transaction."""
    _record(instance._version, 1, 0, using)  # type: ignore[attr-defined]
    _bring_in_line([instance.domain], "true", using)


def after_delete(sender: Any, instance: DomainBlock, using: str, **kwargs: Any) -> None:
    """Brings the marks in line after a block was deleted; in its transaction."""
    _record(instance._version, 0, 1, using)  # type: ignore[attr-defined]
    _release_below([instance.domain], using)
    lifted.send(None, using=using)


def _next_version(using: str) -> int:
    """Raises the version; its row stays locked until the commit."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "INSERT INTO frontier_frontierstate(name, value) VALUES (%s, 1)"
            " ON CONFLICT (name) DO UPDATE SET value = frontier_frontierstate.value + 1 RETURNING value",
            [VERSION],
        )
        return int(cursor.fetchall()[0][0])


def lock_changes(using: str) -> None:
    """Lets nobody change the blocks before the caller's transaction ends."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            f"SELECT value FROM frontier_frontierstate WHERE name = %s {dialect(using).LOCK_ROWS}", [VERSION]
        )
        cursor.fetchall()


def _record(version: int, added: int, removed: int, using: str) -> None:
    BlockChange.objects.using(using).create(
        version=version, token=secrets.randbits(62), added=added, removed=removed, made_at=now_ms()
    )


def _adapted(moment: datetime | None, using: str) -> Any:
    return connections[using].ops.adapt_datetimefield_value(moment)


# --- marks -------------------------------------------------------------------------------------------------------


def below(domains: Sequence[str]) -> tuple[str, list[str]]:
    """SQL and its parameters: whether a host's name is one of a few domains or below it."""
    one = " OR ".join(["name = %s", *["name LIKE %s ESCAPE '!'"] * 3])
    params: list[str] = []
    for domain in domains:
        like = domain.replace("_", "!_")
        params += [domain, f"{like}:%", f"%.{like}", f"%.{like}:%"]
    return f"({' OR '.join([one] * len(domains))})", params


def _judge(condition: str, params: Sequence[Any], using: str) -> int:
    """Brings the marks of the hosts that meet a condition in line, in the caller's transaction; returns how many
    it looked at."""
    with connections[using].cursor() as cursor:
        rest = f"FROM frontier_host WHERE {condition} ORDER BY id"
        found = dialect(using).select(cursor, "id, name, blocked, reason", rest, params)
        covered = covering([name for _, name, _, _ in found], using)
        to_block = [key for key, name, blocked, _ in found if name in covered and not blocked]
        # A visit that met the block before the host was marked has parked it under this reason.
        to_release = [
            key for key, name, blocked, reason in found if name not in covered and (blocked or reason == "blocked")
        ]
        if to_block:
            mark(cursor, to_block, using)
        if to_release:
            _release(cursor, to_release, using)
    return len(found)


def _bring_in_line(domains: Sequence[str], condition: str, using: str) -> None:
    """Brings the hosts below some domains in line, those that meet a condition: now, or by a walk."""
    if len(domains) > FEW:
        FrontierState.objects.using(using).update_or_create(name=WALK, defaults={"value": 0})
    elif domains:
        chosen, params = below(domains)
        _judge(f"{condition} AND {chosen}", params, using)


def mark(cursor: Any, hosts: Sequence[int], using: str) -> None:
    """Keeps hosts (ids in order) from being visited, in the caller's transaction: those that are due become idle
    when a claim comes to them."""
    sql = dialect(using)
    ids = sql.pack(hosts)
    sql.lock_rows(cursor, "frontier_host", f"id IN (SELECT id FROM {sql.rows('id bigint')} chosen)", [ids])
    cursor.execute(
        "UPDATE frontier_host SET blocked = true, reason = 'blocked'"
        f" WHERE id IN (SELECT id FROM {sql.rows('id bigint')} chosen)",
        [ids],
    )


def _release(cursor: Any, hosts: Sequence[int], using: str) -> None:
    sql = dialect(using)
    ids = sql.pack(hosts)
    chosen = f"id IN (SELECT id FROM {sql.rows('id bigint')} chosen)"
    sql.lock_rows(cursor, "frontier_host", chosen, [ids])
    cursor.execute(f"UPDATE frontier_host SET blocked = false, reason = '' WHERE {chosen}", [ids])
    activate(cursor, using, chosen, [ids])


def _release_below(domains: Sequence[str], using: str) -> None:
    for marked in MARKED:
        _bring_in_line(domains, marked, using)


# --- what is done a little at a time -------------------------------------------------------------------------------


def walk(using: str = "default", most: int | None = None) -> Iterator[int]:
    """Goes on with the walk over all hosts, if one is due, for at most so many steps; gives the hosts of each."""
    for _ in count() if most is None else range(most):
        looked_at = _step(using)
        if not looked_at:
            return
        yield looked_at


def _step(using: str) -> int:
    with transaction.atomic(using=using):
        lock_changes(using)
        state = FrontierState.objects.using(using).filter(name=WALK)
        after = state.values_list("value", flat=True).first()
        if after is None:
            return 0
        last, looked_at = _next_hosts("true", [], after, using)
        if not looked_at:
            state.delete()
        else:
            state.update(value=last)
        return looked_at


def _next_hosts(condition: str, params: Sequence[Any], after: int, using: str) -> tuple[int, int]:
    """Judges the next HOSTS hosts by id; returns the last id and how many they were."""
    chosen = f"{condition} AND id > %s"
    with connections[using].cursor() as cursor:
        rest = f"FROM frontier_host WHERE {chosen} ORDER BY id LIMIT %s"
        [ids] = dialect(using).columns(cursor, "id", rest, [*params, after, HOSTS])
    if not len(ids):
        return after, 0
    last = int(ids[-1])
    return last, _judge(f"{chosen} AND id <= %s", [*params, after, last], using)


def lift_expired(using: str = "default") -> int:
    """Looks at the hosts of blocks that have expired since the last call, and releases them; returns how many
    it looked at.

    Verdicts need no sweep: a block is void from the moment of its end.
    """
    now = timezone.now()
    state = FrontierState.objects.using(using).filter(name=LIFTED).values_list("value", flat=True).first()
    expired = DomainBlock.objects.using(using).filter(expires_at__lte=now)
    if state is not None:
        expired = expired.filter(expires_at__gt=datetime.fromtimestamp(state / 1000, now.tzinfo))
    domains = list(expired.values_list("domain", flat=True)[: FEW + 1])
    if not domains:
        return 0
    chosen, params = below(domains) if len(domains) <= FEW else ("true", [])
    total = 0
    for marked in MARKED:
        last, looked_at = 0, 1
        while looked_at:
            with transaction.atomic(using=using):
                lock_changes(using)
                last, looked_at = _next_hosts(f"{marked} AND {chosen}", params, last, using)
            total += looked_at
    value = int(now.timestamp() * 1000) - CLOCK_SKEW_MS
    with transaction.atomic(using=using):
        FrontierState.objects.using(using).update_or_create(name=LIFTED, defaults={"value": value})
        lifted.send(None, using=using)
    return total


def settle_found(using: str = "default") -> int:
    """Marks hosts that a visit found blocked before they were marked, or releases them if the block was lifted
    before the visit was stored; returns how many."""
    found = MARKED[1]
    with connections[using].cursor() as cursor:
        if not dialect(using).select(cursor, "id", f"FROM frontier_host WHERE {found} ORDER BY id LIMIT 1"):
            return 0
    with transaction.atomic(using=using):
        lock_changes(using)
        return _next_hosts(found, [], 0, using)[1]


def sweep_marks(using: str = "default", trigger: Callable[[], None] = lambda: None) -> None:
    """What has to be done every few seconds: ends what has expired, goes on with a walk. `trigger` is called when
    hosts may be claimed again."""
    if lift_expired(using) + settle_found(using) + sum(walk(using, SWEEP_STEPS)):
        trigger()
