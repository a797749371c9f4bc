"""The closed list of ways in which a fetch can fail, and what follows from each. docs/errors.md holds the table too."""

from enum import Enum, StrEnum
from typing import NamedTuple

import pycurl


class Kind(StrEnum):
    """A kind of failure. The value is what is stored and shown."""

    DNS = "dns"
    BLOCKED_ADDRESS = "blocked-address"
    CONNECT = "connect"
    TIMEOUT_CONNECT = "timeout-connect"
    TLS = "tls"
    TIMEOUT_TOTAL = "timeout-total"
    TOO_SLOW = "too-slow"
    DISCONNECT = "disconnect"
    BAD_HTTP = "bad-http"
    TRUNCATED = "truncated"
    TOO_LARGE = "too-large"
    BOMB = "bomb"
    ROBOTS_DENIED = "robots-denied"
    ROBOTS_UNREACHABLE = "robots-unreachable"
    OUT_OF_SCOPE = "out-of-scope"
    BLOCKED_DOMAIN = "blocked-domain"
    BLOCKED_PORT = "blocked-port"
    BAD_REDIRECT = "bad-redirect"
    REDIRECT_LOOP = "redirect-loop"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    OVERLOADED = "overloaded"
    INTERNAL = "internal"


class Retry(Enum):
    """What is asked again after a failure; the value is how docs/errors.md says it."""

    NEVER = "no"
    URL = "the URL"
    HOST = "the host"
    PARK = "no, the host is parked"


class Rule(NamedTuple):
    """What a kind means, and what follows.

    `tries`: further tries of the URL itself. Where the host is asked again they are for the URLs of a dead scheme of
    a host whose other scheme answers (http and https).
    """

    meaning: str
    retry: Retry
    tries: int = 0


RULES: dict[Kind, Rule] = {
    Kind.DNS: Rule("the name has no address, or its look-up failed", Retry.HOST, 2),
    Kind.BLOCKED_ADDRESS: Rule("the name leads to an address that trawl does not dial", Retry.PARK),
    Kind.CONNECT: Rule("the connection was refused, or there is no way to the address", Retry.HOST, 2),
    Kind.TIMEOUT_CONNECT: Rule("no connection stood in time", Retry.HOST, 2),
    Kind.TLS: Rule("no secure connection: wrong, expired or unknown certificate, or no TLS", Retry.HOST, 2),
    Kind.TIMEOUT_TOTAL: Rule("no answer in time, or not the whole of it; what came is kept", Retry.URL, 2),
    Kind.TOO_SLOW: Rule("an answer that came in drips; what came is kept", Retry.URL, 2),
    Kind.DISCONNECT: Rule("the connection was closed or reset before an answer came", Retry.URL, 2),
    Kind.BAD_HTTP: Rule("an answer that is no HTTP, or whose head is larger than 256 KiB", Retry.NEVER),
    Kind.TRUNCATED: Rule("an answer that breaks off before its end; what came is kept", Retry.URL, 1),
    Kind.TOO_LARGE: Rule("a body larger than 32 MiB; that much of it is kept", Retry.NEVER),
    Kind.BOMB: Rule("a body that unpacks to far more than it is; the beginning is read", Retry.NEVER),
    Kind.ROBOTS_DENIED: Rule("robots.txt forbids the URL; it was not asked for", Retry.NEVER),
    Kind.ROBOTS_UNREACHABLE: Rule(
        "robots.txt could not be had, so nothing of the host may be asked for", Retry.HOST, 2
    ),
    Kind.OUT_OF_SCOPE: Rule("a redirect that leads out of the campaign", Retry.NEVER),
    Kind.BLOCKED_DOMAIN: Rule("a link to a domain that is blocked; it was not asked for", Retry.NEVER),
    Kind.BLOCKED_PORT: Rule("a link or redirect to a port that is not one of the campaign's (`--ports`)", Retry.NEVER),
    Kind.BAD_REDIRECT: Rule("a redirect to what is no web address", Retry.NEVER),
    Kind.REDIRECT_LOOP: Rule("a redirect that leads back to where it came from", Retry.NEVER),
    Kind.TOO_MANY_REDIRECTS: Rule("more than 10 redirects in a row on one host", Retry.NEVER),
    Kind.OVERLOADED: Rule("429 or 503 each time; the host is left alone in between", Retry.URL, 2),
    Kind.INTERNAL: Rule("an error in trawl itself; the log says more", Retry.NEVER),
}

SERVER_ERROR_TRIES = 2  # after a 5xx, which is an answer and so no kind of failure
# The host did not answer at all: the next URL of the same host would meet the same end.
HOST_KINDS = frozenset(kind for kind, rule in RULES.items() if rule.retry is Retry.HOST)
# Worth another try of the same URL later.
TRANSIENT_KINDS = frozenset(kind for kind, rule in RULES.items() if rule.retry is Retry.URL)
# The same, and each held a connection for as long as it could: a host of which this is all that comes is left alone.
SILENT_KINDS = frozenset({Kind.TIMEOUT_TOTAL, Kind.TOO_SLOW, Kind.DISCONNECT})
# No host failure that time mends: asking again would do nothing but harm.
FINAL_HOST_KINDS = frozenset(kind for kind, rule in RULES.items() if rule.retry is Retry.PARK)
# The content is what came, and another fetch would bring no more.
KEPT_KINDS = frozenset({Kind.TOO_LARGE, Kind.BOMB})
# What trawl was told not to ask for: nothing went wrong.
FORBIDDEN_KINDS = frozenset({Kind.ROBOTS_DENIED, Kind.OUT_OF_SCOPE, Kind.BLOCKED_DOMAIN, Kind.BLOCKED_PORT})

# Codes of libcurl that pycurl has no names for.
E_WEIRD_SERVER_REPLY, E_HTTP2_STREAM, E_PROXY, E_TOO_LARGE = 8, 92, 97, 100
_OF_CURL = {
    pycurl.E_COULDNT_RESOLVE_HOST: Kind.DNS,
    pycurl.E_COULDNT_RESOLVE_PROXY: Kind.DNS,
    pycurl.E_COULDNT_CONNECT: Kind.CONNECT,
    E_PROXY: Kind.CONNECT,
    pycurl.E_INTERFACE_FAILED: Kind.CONNECT,
    pycurl.E_PARTIAL_FILE: Kind.TRUNCATED,
    pycurl.E_GOT_NOTHING: Kind.DISCONNECT,
    pycurl.E_SEND_ERROR: Kind.DISCONNECT,
    pycurl.E_RECV_ERROR: Kind.DISCONNECT,
    E_HTTP2_STREAM: Kind.DISCONNECT,
    pycurl.E_SSL_CONNECT_ERROR: Kind.TLS,
    pycurl.E_PEER_FAILED_VERIFICATION: Kind.TLS,
    pycurl.E_SSL_CIPHER: Kind.TLS,
    pycurl.E_SSL_CERTPROBLEM: Kind.TLS,
    pycurl.E_SSL_CACERT: Kind.TLS,
    pycurl.E_SSL_CACERT_BADFILE: Kind.TLS,
    pycurl.E_SSL_ISSUER_ERROR: Kind.TLS,
    pycurl.E_SSL_SHUTDOWN_FAILED: Kind.TLS,
}
# The head is all that a redirect is needed for.
BODY_KINDS = frozenset({Kind.TRUNCATED, Kind.TOO_LARGE, Kind.TIMEOUT_TOTAL, Kind.TOO_SLOW})
# libcurl stopped at the form of the answer; another reader may make sense of it.
UNREADABLE = frozenset(
    {
        pycurl.E_UNSUPPORTED_PROTOCOL,  # no status line, or of an unknown version
        E_WEIRD_SERVER_REPLY,  # NUL, CR or no colon in a header line, no number as length
        pycurl.E_BAD_CONTENT_ENCODING,  # an unknown transfer coding
        E_TOO_LARGE,  # a header line over 100 KB, or over 5,000 of them
        pycurl.E_HTTP2,
    }
)
# Of libcurl's message about a TLS connection that was closed without a goodbye, as many servers do.
UNEXPECTED_EOF = "unexpected eof"


def tries_of(kind: Kind | None) -> int:
    """Further tries of a URL after a failure; None: it was answered, but by a 5xx."""
    return RULES[kind].tries if kind else SERVER_ERROR_TRIES


def kind_of(code: int, message: str, connected: bool, head: str, body: bool) -> Kind:
    """The kind of a libcurl error code.

    `connected`: a connection stood when it ended; `head`: "", "part" or "whole", as much of it as came;
    `body`: some of a body came.
    """
    if code == pycurl.E_OPERATION_TIMEDOUT:
        if not connected:
            return Kind.TIMEOUT_CONNECT
        return Kind.TOO_SLOW if head and "too slow" in message else Kind.TIMEOUT_TOTAL
    if code == pycurl.E_RECV_ERROR and ("chunk" in message or "headers" in message):
        return Kind.TRUNCATED if body else Kind.BAD_HTTP
    kind = _OF_CURL.get(code, Kind.BAD_HTTP)
    return Kind.TRUNCATED if kind is Kind.DISCONNECT and head == "whole" else kind


def table() -> str:
    """The rows of docs/errors.md."""
    rows = []
    for kind, rule in RULES.items():
        times = f", {rule.tries} more" if rule.retry is Retry.URL else ""
        rows.append(f"| `{kind}` | {rule.meaning} | {rule.retry.value}{times} |\n")
    return "".join(rows)
