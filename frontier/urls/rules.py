"""Site rules: what a site's owner may declare to be no difference between two URLs. All off by default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tldextract import TLDExtract

# Compared in lower case. One-letter names (phpBB's "s") are left out: too many sites search or page by them.
SESSION_PARAMETERS = frozenset(
    {
        "asp.net_sessionid",
        "cfid",
        "cftoken",
        "jsessionid",
        "jsession_id",
        "oscsid",
        "phpsessid",
        "phpsessionid",
        "sessid",
        "session_id",
        "sessionid",
        "sid",
        "xtcsid",
        "zenid",
    }
)
SESSION_PARAMETER_PREFIXES = ("aspsessionid",)

TRACKING_PARAMETERS = frozenset(
    {
        "_ga",
        "_gl",
        "_hsenc",
        "_hsmi",
        "_openstat",
        "dclid",
        "epik",
        "fbclid",
        "gbraid",
        "gclid",
        "gclsrc",
        "igsh",
        "igshid",
        "li_fat_id",
        "mc_cid",
        "mc_eid",
        "mkt_tok",
        "msclkid",
        "oly_anon_id",
        "oly_enc_id",
        "pk_campaign",
        "pk_content",
        "pk_keyword",
        "pk_kwd",
        "pk_medium",
        "pk_source",
        "srsltid",
        "ttclid",
        "twclid",
        "vero_conv",
        "vero_id",
        "wbraid",
        "wickedid",
        "yclid",
        "ysclid",
    }
)
TRACKING_PARAMETER_PREFIXES = ("utm_", "mtm_")

INDEX_FILES = frozenset(
    {
        "default.asp",
        "default.aspx",
        "default.htm",
        "default.html",
        "index.asp",
        "index.aspx",
        "index.cfm",
        "index.cgi",
        "index.htm",
        "index.html",
        "index.jsp",
        "index.php",
        "index.php3",
        "index.php4",
        "index.php5",
        "index.phtml",
        "index.pl",
        "index.shtml",
        "index.xhtml",
    }
)

# ";jsessionid=…" ends at the next path parameter or segment. A segment that would be left as "." or ".." is
# not touched: it would climb the path on the next parse, and name another resource.
_PATH_PARAMETER = re.compile(r"(?<!/\.)(?<!/\.\.);(?:jsessionid|phpsessid|sessionid|sid)=[^;/]*", re.IGNORECASE)
# ASP.NET without cookies: "/(S(id))/", also with A(…) and F(…) tickets; .NET 1.1 wrote 24 bare characters.
_PATH_SEGMENT = re.compile(r"/\((?:(?:[ASF]\([^()/]*\))+|[a-z0-9]{24})\)(?=/|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rules:
    """Which differences between URLs do not matter on a site. They change the identity, never the request."""

    session_ids: bool = False
    """Session ids in the path (";jsessionid=…", "/(S(…))/") and in known query parameters."""
    tracking: bool = False
    """Query parameters of advertising and mail campaigns."""
    trailing_slash: bool = False
    """The slash at the end of a path other than the root."""
    index_files: bool = False
    """index.html and its kin at the end of a path: the same as the directory."""
    www: bool = False
    """A leading "www." before a name that is a domain of its own."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rules:
        """Rules from stored names and booleans; a name left out is off.

        Raises ValueError for an unknown name or a value that is no boolean.
        """
        known = [field.name for field in fields(cls)]
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"unknown site rule {name!r}; the known rules are {', '.join(known)}")
            if not isinstance(value, bool):
                raise ValueError(f"site rule {name!r} must be true or false, not {value!r}")
        # The shared instance, so that canonicalise sees by identity that there is nothing to apply.
        return cls(**values) if any(values.values()) else NO_RULES

    def to_dict(self) -> dict[str, bool]:
        """Every rule by name, as from_dict takes them."""
        return asdict(self)


NO_RULES = Rules()


def rewrite_path(path: str, rules: Rules) -> str:
    """The path without the differences that `rules` declare void; it starts with "/", before and after."""
    if rules.session_ids:
        path = _PATH_SEGMENT.sub("", _PATH_PARAMETER.sub("", path)) or "/"
    # To a fixed point, since one rule may uncover work for another: /index.html/index.html loses its file,
    # then its slash, and ends in an index file again. Session ids stay outside: nothing at the end of a path
    # hides one, and with them a path of 700 index files took 0.1 s.
    while True:
        before = path
        if rules.index_files:
            directory, slash, name = path.rpartition("/")
            if name.lower() in INDEX_FILES:
                path = directory + slash
        if rules.trailing_slash and path.endswith("/"):
            path = path.rstrip("/") or "/"
        if path == before:
            return path


def keep_parameter(parameter: str, rules: Rules) -> bool:
    """Whether a raw query parameter ("name=value") is part of the identity under `rules`."""
    name = parameter.partition("=")[0].lower()
    if rules.session_ids and (name in SESSION_PARAMETERS or name.startswith(SESSION_PARAMETER_PREFIXES)):
        return False
    return not (rules.tracking and (name in TRACKING_PARAMETERS or name.startswith(TRACKING_PARAMETER_PREFIXES)))


@lru_cache(maxsize=8192)
def without_www(host: str) -> str:
    """A canonical "host" or "host:port" without each leading "www." that stands before a registrable name.

    www.example.co.uk -> example.co.uk, but www.co.uk, www.com, www.github.io and www.localhost stay.
    """
    while host.startswith("www."):
        rest = host[4:]
        split = _suffixes()(rest)
        if not (split.domain and split.suffix):
            break
        host = rest
    return host


@cache
def _suffixes() -> TLDExtract:
    # Imported on first use: 0.15 s and 23 MB that only crawls with this rule pay. No cache directory and
    # no list address, so it touches neither disk nor network.
    from tldextract import TLDExtract

    return TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)
