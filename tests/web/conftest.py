"""An empty installation, people who are logged in, and a campaign."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from crawl import campaigns
from crawl.models import Campaign
from frontier.admission import recent
from frontier.state import hash_seed
from tests.web.people import in_role

Login = Callable[[str], Client]


@pytest.fixture(autouse=True)
def installation(settings: Any, tmp_path: Path, db: None) -> Iterator[None]:
    settings.DATA_DIR = tmp_path
    settings.CONTACT = ""
    hash_seed.cache_clear()
    recent.cache_clear()
    yield
    hash_seed.cache_clear()
    recent.cache_clear()


@pytest.fixture
def login() -> Login:
    """A browser of somebody in a role."""
    return in_role


@pytest.fixture
def campaign() -> Campaign:
    made = Campaign.objects.create(name="garden", contact="me@example.org")
    campaigns.add_seeds(made, [("http://127.0.0.1:8080/", 10)])
    return made
