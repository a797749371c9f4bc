"""The Celery app: where tasks go, how a worker runs them, and the beat of the ticks."""

import logging
import os
import sys
from typing import Any

from celery import Celery
from celery.signals import beat_init, setup_logging, worker_init
from kombu import Exchange, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trawl_project.settings")

from django.conf import settings

from trawl_project.databases import check_data_directory

CONTROL_QUEUE = "control"
# Threads of a worker process: some hold batches of visits, the rest stay free for control tasks.
VISIT_THREADS = 48
CONTROL_THREADS = 8
# A visit task waits at most this long for its visits; the fetch loop goes on with those that are
# left, under their leases, so that one slow host cannot hold a thread.
VISIT_TASK_SECONDS = 10
TICK_SECONDS = 1.0


def fetch_queues() -> list[str]:
    """The names of the fetch queues, in the order that hosts are spread over them."""
    return [f"fetch.{number}" for number in range(settings.FETCH_QUEUES)]


app = Celery("trawl", broker=settings.BROKER_URL)
app.conf.update(
    # Without an exchange and key of its own a queue is bound to the default's, and gets its messages too.
    task_queues=[Queue(name, Exchange("trawl"), routing_key=name) for name in [CONTROL_QUEUE, *fetch_queues()]],
    task_default_queue=CONTROL_QUEUE,
    task_default_exchange="trawl",
    task_default_routing_key=CONTROL_QUEUE,
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_time_limit=None,  # a thread cannot be killed; each visit has its own limits in the fetch loop
    worker_pool="threads",
    worker_concurrency=VISIT_THREADS + CONTROL_THREADS,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    worker_enable_remote_control=settings.BROKER_URL != "memory://",
    broker_connection_retry_on_startup=True,
    broker_transport_options=(
        {"polling_interval": 0.02}
        if settings.BROKER_URL.startswith("memory:")
        else {"visibility_timeout": max(300, 4 * settings.LEASE_SECONDS)}
        if settings.BROKER_URL.startswith("redis")
        else {}
    ),
    beat_scheduler="django_celery_beat.schedulers:DatabaseScheduler",
    beat_schedule={
        "dispatch": {"task": "crawl.tasks.dispatch", "schedule": TICK_SECONDS, "options": {"expires": 5}},
        "merge": {"task": "crawl.tasks.merge", "schedule": TICK_SECONDS, "options": {"expires": 5}},
        "sweep": {"task": "crawl.tasks.sweep", "schedule": 5.0, "options": {"expires": 15}},
    },
)
app.autodiscover_tasks(["crawl"])


@setup_logging.connect
def keep_logging(loglevel: int | str | None = None, **kwargs: Any) -> None:
    """Django's settings say where logs go; `celery worker --loglevel` can only make them more talkative."""
    root = logging.getLogger()
    wanted = logging.getLevelName(loglevel) if isinstance(loglevel, str) else loglevel
    if isinstance(wanted, int) and wanted < root.level:
        root.setLevel(wanted)


@worker_init.connect
@beat_init.connect
def look_before_opening(**kwargs: Any) -> None:
    """As the commands do: nothing begins in a data directory in which a restore was cut short."""
    from django.core.management import CommandError

    try:
        check_data_directory()
    except CommandError as error:
        sys.exit(f"trawl: {error}")
