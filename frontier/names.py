"""Host names by queue: they never change, so they are remembered."""

from functools import lru_cache

from frontier.models import Queue


@lru_cache(maxsize=4096)
def host_of(queue: int, using: str = "default") -> str:
    """The host name of a back queue, '' when there is no such queue."""
    return Queue.objects.using(using).filter(id=queue).values_list("host__name", flat=True).first() or ""
