"""Makes `celery -A trawl worker` and `celery -A trawl beat` work."""

from trawl_project.celery import app

__all__ = ["app"]
