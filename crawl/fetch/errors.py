"""The closed list of ways in which a fetch can fail, and what follows from each."""

from enum import StrEnum

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
    BAD_REDIRECT = "bad-redirect"
    REDIRECT_LOOP = "redirect-loop"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    OVERLOADED = "overloaded"
    INTERNAL = "internal"


# The host did not answer at all: the next URL of the same host would meet the same end.
HOST_KINDS = frozenset({Kind.DNS, Kind.CONNECT, Kind.TIMEOUT_CONNECT, Kind.TLS, Kind.ROBOTS_UNREACHABLE})
# Worth another try of the same URL later.
TRANSIENT_KINDS = frozenset({Kind.TIMEOUT_TOTAL, Kind.TOO_SLOW, Kind.DISCONNECT, Kind.BAD_HTTP, Kind.TRUNCATED})
# No host failure that time mends: asking again would do nothing but harm.
FINAL_HOST_KINDS = frozenset({Kind.BLOCKED_ADDRESS})

_OF_CURL = {
    pycurl.E_COULDNT_RESOLVE_HOST: Kind.DNS,
    pycurl.E_COULDNT_RESOLVE_PROXY: Kind.DNS,
    pycurl.E_COULDNT_CONNECT: Kind.CONNECT,
    pycurl.E_PARTIAL_FILE: Kind.TRUNCATED,
    pycurl.E_GOT_NOTHING: Kind.DISCONNECT,
    pycurl.E_SEND_ERROR: Kind.DISCONNECT,
    pycurl.E_RECV_ERROR: Kind.DISCONNECT,
    pycurl.E_FILESIZE_EXCEEDED: Kind.TOO_LARGE,
    pycurl.E_SSL_CONNECT_ERROR: Kind.TLS,
    pycurl.E_PEER_FAILED_VERIFICATION: Kind.TLS,
    pycurl.E_SSL_CIPHER: Kind.TLS,
    pycurl.E_SSL_CERTPROBLEM: Kind.TLS,
    pycurl.E_SSL_CACERT: Kind.TLS,
    pycurl.E_SSL_CACERT_BADFILE: Kind.TLS,
    pycurl.E_SSL_ISSUER_ERROR: Kind.TLS,
    pycurl.E_SSL_SHUTDOWN_FAILED: Kind.TLS,
}


def kind_of(code: int, connected: bool, slow: bool) -> Kind:
    """The kind of a libcurl error code.

    `connected`: a connection stood when it ended; `slow`: bytes came, but too few of them a second.
    """
    if code == pycurl.E_OPERATION_TIMEDOUT:
        if not connected:
            return Kind.TIMEOUT_CONNECT
        return Kind.TOO_SLOW if slow else Kind.TIMEOUT_TOTAL
    return _OF_CURL.get(code, Kind.BAD_HTTP)
