"""A paginator for tables of millions of rows: it never counts them all."""

from functools import cached_property

from django.core.paginator import Paginator
from django.db.models import QuerySet

# Rows that a list offers for leafing through; who looks for more than that searches or filters.
MOST = 10_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts at most MOST rows, so that a page of a large table costs what a page of a small one does."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or MOST where there are more."""
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return int(rows.order_by()[:MOST].count())
        return len(rows)
