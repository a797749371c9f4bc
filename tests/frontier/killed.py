"""A worker or a merger of a made-up web, to be killed: python -m tests.frontier.killed ROLE RUN URLS LOG [--to-the-end]

Page n of the web links to pages 2n + 1, 2n + 2 and 0. A worker writes "RUN n" into LOG for every page before
it stores anything of it, as a server would that is asked for it.
"""

import os
import sys

import django

HOSTS = 97
LEASE_MS = 20_000
CAMPAIGN = 1
PAUSE = 0.02  # between the steps of a worker, so that a kill finds it at each of them


def url(number: int) -> str:
    return f"https://h{number % HOSTS}.test/{number}"


def main() -> None:
    role, run, urls, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    to_the_end = "--to-the-end" in sys.argv
    django.setup()
    if role == "merger":
        merge_on(to_the_end)
    else:
        work(run, urls, os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), to_the_end)


def merge_on(to_the_end: bool) -> None:
    import time

    from frontier.merge import merge

    idle = 0
    while not to_the_end or idle < 20:
        idle = 0 if merge(max_links=400).links else idle + 1
        time.sleep(0.01 if idle else 0)


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
    idle = 0
    while not to_the_end or idle < 60:
        visits = [
            visit
            for one in claim(16, lease_ms=LEASE_MS, horizon_ms=1_000)
            for visit in open_visits(one, [CAMPAIGN], lambda gap_ms, delay_ms: 8, lease_ms=LEASE_MS)
        ]
        idle = 0 if visits else idle + 1
        pages = [int(from_reference(one.ref, visit.name).rsplit("/", 1)[1]) for visit in visits for one in visit.urls]
        if not visits:
            time.sleep(0.02)
            continue
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
