"""The options of `trawl crawl` that say what requests carry: headers, credentials, cookies."""

import re
import shlex
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from crawl.fetch.request_headers import parse_auth, parse_header, parse_headers
from crawl.models import Campaign

_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")

Auth = tuple[str, str, str]


def add_request_options(parser: CommandParser) -> None:
    """Adds the options to the command's own."""
    add = parser.add_argument
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
    for origin, user, password in (*(options["auth_file"] or ()), *(options["auth"] or ())):
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
            shown.append(_USERINFO.sub("USER:PASSWORD@", word))
    return shlex.join(shown)


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A function that argparse can use: what it refuses is told with its reason."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return parsed
