"""Keys and the stored form of URLs: hashes for the seen index, references for the queue."""

from __future__ import annotations

from xxhash import xxh3_128_digest

URL_HASH_BYTES = 12
HOST_KEY_BYTES = 16

# (encoded canonical URL, seed) -> 16 bytes, of which url_hash is the head: for a loop over links that has no time
# for a call and a slice of each.
url_digest = xxh3_128_digest


def url_hash(canonical: str, seed: int) -> bytes:
    """URL_HASH_BYTES bytes for a canonical URL: the head of its xxh3_128 with the install's 64-bit seed."""
    return url_digest(canonical.encode(), seed)[:URL_HASH_BYTES]


def host_key(campaign: int, host: str, seed: int) -> bytes:
    """HOST_KEY_BYTES bytes for a campaign's host: xxh3_128 with the install's 64-bit seed."""
    # The number ends at the first NUL, so no two pairs share their bytes, whatever the host holds.
    return xxh3_128_digest(b"%d\0%s" % (campaign, host.encode()), seed)


def to_reference(fetch: str, host: str) -> str:
    """The short form in which the queue of `host` stores a URL to fetch; from_reference undoes it exactly.

    https://host/path?q -> /path?q; http://host/path?q -> http:/path?q; any other URL stays absolute. Raises
    ValueError for what canonicalise never gives: another scheme, or a line break.
    """
    if "\n" in fetch:
        raise ValueError("a URL with a line break cannot be stored as a reference")
    if fetch.startswith(f"https://{host}/"):
        return fetch[8 + len(host) :]
    if not fetch.startswith(("http://", "https://")):
        raise ValueError("only an absolute http or https URL can be stored as a reference")
    # A path that starts with "//" would read as an absolute URL after "http:".
    if fetch.startswith(f"http://{host}/") and not fetch.startswith(f"http://{host}//"):
        return "http:" + fetch[7 + len(host) :]
    return fetch


def from_reference(reference: str, host: str) -> str:
    """The URL to fetch that to_reference stored in the queue of `host`."""
    if reference.startswith("/"):
        return f"https://{host}{reference}"
    if reference.startswith("http:/") and not reference.startswith("http://"):
        return f"http://{host}{reference[5:]}"
    return reference
