"""Answers that do not fit the request they were given to."""

import re
from collections.abc import Mapping

from crawl.fetch.errors import Kind

_RANGE = re.compile(r"bytes\s+(\d+)-(\d+)/(\d+|\*)", re.IGNORECASE)


def misanswer(status: int, headers: Mapping[str, str], conditional: bool) -> tuple[Kind, str] | None:
    """What is wrong with an answer to a GET without Range; None when nothing is.

    `conditional`: the request had If-None-Match or If-Modified-Since. A 206 was not asked for (RFC 9110 section
    15.3.7): its body is a part of the page, unless Content-Range says that the part is all of it. A 304 without a
    condition (section 15.4.5) says nothing about a page that we do not have.
    """
    if status == 206:
        match = _RANGE.fullmatch(headers.get("content-range", "").strip())
        if match and match[1] == "0" and match[3] != "*" and int(match[2]) + 1 == int(match[3]):
            return None
        return Kind.TRUNCATED, "206, a part of the page, to a request for all of it"
    if status == 304 and not conditional:
        return Kind.BAD_HTTP, "304, not modified, to a request without a condition"
    return None
