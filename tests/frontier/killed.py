"""A worker or a merger of a made-up web, to be killed: python -m tests.frontier.killed ROLE RUN URLS LOG [--to-the-end]

Page n of the web links to pages 2n + 1, 2n + 2 and 0. A worker writes "RUN n" into LOG for every page before
it stores anything of it, as a server would that is asked for it. With --to-the-end it ends when nothing is
left to be merged or visited, and with an error when something is left that nobody gives it for a minute.
"""

import os
import sys

import django

HOSTS = 97
LEASE_MS = 20_000
PATIENCE = 60.0  # seconds, three leases
CAMPAIGN = 1
PAUSE = 0.02  # between the steps of a worker, so that a kill finds it at each of them


def url(number: int) -> str:
    return f"https://h{number % HOSTS}.test/{number}"


def main() -> None:
    role, run, urls, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    to_the_end = "--to-the-end" in sys.argv
    django.setup()
    if role == "merger":
        merge_on()
    else:
        work(run, urls, os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), to_the_end)


def merge_on() -> None:
    import time

    from frontier.merge import merge

    while True:
        if not merge(max_links=400).links:
            time.sleep(0.01)


def is_empty() -> bool:
    """Whether no link waits to be merged, no URL to be visited and no visit is open.

    The inbox is looked at first: what a merge takes out of it afterwards is in the queue by then.
    """
    from frontier.models import Inbox, LeasedHost, QueuedUrl
    from frontier.router import inbox_alias

    tables = (Inbox.objects.using(inbox_alias("default")), QueuedUrl.objects, LeasedHost.objects)
    return not any(table.exists() for table in tables)


def work(run: str, urls: int, log: int, to_the_end: bool) -> None:
    import time

    from django.db import transaction

    from frontier.admission import Link, admit
    from frontier.claim import claim, free_all_leases, open_visits
    from frontier.complete import Release, finish, settle
    from frontier.politeness import now_ms
    from frontier.priority import by_depth
    from frontier.urls import canonicalise, from_reference

    free_all_leases()  # as a start does that knows its predecessor to be dead
    idle_since = time.monotonic()
    while True:
        visits = [
            visit
            for one in claim(16, lease_ms=LEASE_MS, horizon_ms=1_000)
            for visit in open_visits(one, [CAMPAIGN], lambda gap_ms, delay_ms: 8, lease_ms=LEASE_MS)
        ]
        pages = [int(from_reference(one.ref, visit.name).rsplit("/", 1)[1]) for visit in visits for one in visit.urls]
        if not visits:
            if to_the_end and is_empty():
                return
            if to_the_end and time.monotonic() > idle_since + PATIENCE:
                sys.exit("URLs wait, and no host with any of them came up")
            time.sleep(0.02)
            continue
        idle_since = time.monotonic()
        time.sleep(PAUSE)
        os.write(log, "".join(f"{run} {page}\n" for page in pages).encode())
        links = [to for page in pages for to in (2 * page + 1, 2 * page + 2, 0) if to < urls]
        time.sleep(PAUSE)
        admit(CAMPAIGN, [Link(canonicalise(url(to)), by_depth(to.bit_length()), to.bit_length()) for to in links])
        time.sleep(PAUSE)
        with transaction.atomic():
            finish(CAMPAIGN, [one.row for visit in visits for one in visit.urls])
            settle([], [Release(visit.host, visit.token, now_ms(), 0, 0, "") for visit in visits])


if __name__ == "__main__":
    main()
