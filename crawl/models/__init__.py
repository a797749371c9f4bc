"""The tables of the crawl."""

from crawl.models.campaign import Campaign, Credential, Run, Sample, ScopeRule, Seed, Tally, Worker
from crawl.models.page import Fetch, Page, RobotsFile, WarcFile

__all__ = [
    "Campaign",
    "Credential",
    "Fetch",
    "Page",
    "RobotsFile",
    "Run",
    "Sample",
    "ScopeRule",
    "Seed",
    "Tally",
    "WarcFile",
    "Worker",
]
