"""How an engine fetches, by the settings and by what a command adds to them."""

from pathlib import Path

from django.conf import settings

from crawl.fetch.authorities import with_added
from crawl.fetch.engine import Options
from crawl.fetch.guard import parse_network
from crawl.fetch.proxies import parse_proxy
from crawl.fetch.resolver import parse_name_server, parse_override
from trawl_project.errors import parsed


def engine_options(
    data: Path,
    overrides: tuple[tuple[str, str], ...] = (),
    allow_networks: tuple[str, ...] = (),
    proxies: tuple[str, ...] = (),
) -> Options:
    """The options of an engine that keeps its files in `data`. Raises InvalidAuthorities and SettingError."""
    return Options(
        data=data,
        overrides=(*overrides, *parsed("TRAWL_RESOLVE", settings.RESOLVE, parse_override)),
        allow_networks=(
            *allow_networks,
            *map(str, parsed("TRAWL_ALLOW_NETWORKS", settings.ALLOW_NETWORKS, parse_network)),
        ),
        proxies=proxies or tuple(parsed("TRAWL_PROXY", settings.PROXIES, parse_proxy)),
        name_servers=tuple(parsed("TRAWL_NAME_SERVERS", settings.NAME_SERVERS, parse_name_server)),
        ca_file=with_added(settings.CA_FILE, data),
        lease_ms=settings.LEASE_SECONDS * 1000,
        capacity=settings.VISITS_PER_WORKER,
    )
