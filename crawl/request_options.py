"""The options of `trawl crawl` and `trawl fetch` that say what requests carry, and which way they go."""

import re
import shlex
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from crawl.fetch.guard import parse_network
from crawl.fetch.proxies import parse_proxy
from crawl.fetch.request_headers import parse_auth, parse_header, parse_headers
from crawl.fetch.resolver import parse_override
from crawl.models import Campaign

_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")

Auth = tuple[str, str, str]


def add_request_options(parser: CommandParser) -> None:
    """Adds the options to the command's own."""
    add = parser.add_argument
    add("--contact", metavar="MAIL-or-URL", help="where site owners can complain; goes into the User-Agent")
    add(
        "--header",
        metavar="'NAME: VALUE'",
        action="append",
        type=checked(parse_header),
        help="a header for every request of the campaign, to whichever host; those given replace those it had",
    )
    add(
        "--auth",
        metavar="HOST=USER:PASSWORD",
        action="append",
        type=checked(parse_auth),
        help="basic authentication for one host by https (http://HOST=... by http); other users of this machine can"
        " see it in the list of processes, so rather use --auth-file",
    )
    add("--auth-file", metavar="FILE", type=checked(read_auth_file), help="a file of such lines")
    add("--cookies", action="store_true", help="keep the cookies of each host, and send them to it alone")


def add_network_options(parser: CommandParser) -> None:
    """Adds the options that say which way requests go."""
    add = parser.add_argument
    add("--resolve", metavar="NAME=ADDRESS", action="append", type=checked(parse_override), default=[])
    add("--allow-network", metavar="CIDR", action="append", type=checked(parse_network), default=[])
    add(
        "--proxy",
        metavar="URL",
        action="append",
        type=checked(parse_proxy),
        help="send every request through this proxy (http:// or socks5h://); given several times, a host keeps to"
        " one of them while it works. One with a password is better put into TRAWL_PROXY",
    )


def network_options(options: dict[str, Any]) -> dict[str, Any]:
    """These options as crawl.engine_options.engine_options takes them."""
    return {
        "overrides": tuple(options["resolve"]),
        "allow_networks": tuple(str(network) for network in options["allow_network"]),
        "proxies": tuple(options["proxy"] or ()),
    }


def credentials_of(options: dict[str, Any]) -> list[Auth]:
    """The credentials that the options give, those on the command line last."""
    return [*(options["auth_file"] or ()), *(options["auth"] or ())]


def apply_request_options(campaign: Campaign, options: dict[str, Any]) -> None:
    """Changes what the options name, and saves it."""
    if options["header"] is not None:
        campaign.headers = "\n".join(options["header"])
        try:
            parse_headers(campaign.headers)
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from None
    if options["cookies"]:
        campaign.cookies = True
    campaign.save(update_fields=["headers", "cookies"])
    for origin, user, password in credentials_of(options):
        campaign.credentials.update_or_create(origin=origin, defaults={"user": user, "password": password})


def read_auth_file(name: str) -> list[Auth]:
    """The credentials of a file, one a line; # begins a comment line. Raises ValueError, without a password."""
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not a UTF-8 text file") from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found.append(parse_auth(line.strip()))
            except ValueError as error:
                raise ValueError(f"{name}, line {number}: {error}") from None
    return found


def seconds(text: str) -> int:
    """Seconds as milliseconds, for argparse."""
    try:
        number = float(text)
    except ValueError:
        raise ArgumentTypeError(f"'{text}' is not a number of seconds") from None
    if not 0 <= number <= 86_400:
        raise ArgumentTypeError("it must be between 0 and 86400 seconds")
    return round(number * 1000)


def without_userinfo(url: str) -> str:
    """A URL that may be shown: without its user and password."""
    return _USERINFO.sub("USER:PASSWORD@", url)


def without_secrets(words: Iterable[str]) -> str:
    """A command line that may be shown: without --auth, which the campaign remembers, and without the user and
    password of a URL or proxy."""
    shown = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == "--auth":
            skip = True
        elif not word.startswith("--auth="):
            shown.append(without_userinfo(word))
    return shlex.join(shown)


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A function that argparse can use: what it refuses is told with its reason."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return parsed
