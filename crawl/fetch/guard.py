"""The address guard: trawl connects to public addresses only, unless the operator allows a network."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# NAT64 of the well-known prefix (RFC 6052): a public IPv4 address behind it is as good as the address itself.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# What `is_global` of Python 3.11 lets through and nobody's site is on: protocol assignments, 6to4 relays (RFC 7526),
# and the address at which Azure serves its virtual machines.
_NOT_PUBLIC_V4 = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")))
# IPv6 is given out in 2000::/3 alone; whatever lies elsewhere (IPv4-compatible, local NAT64, site-local) is no site.
# Of it not: protocol assignments with Teredo, documentation, 6to4, which is a way to an IPv4 address.
_PUBLIC_V6 = ipaddress.ip_network("2000::/3")
_NOT_PUBLIC_V6 = tuple(map(ipaddress.ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # RFC 5214 section 6.1, before the IPv4 address that is meant


class Guard:
    """Says which addresses may be dialled. `allowed` are networks the operator has opened up."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = tuple(parse_network(text) for text in allowed)
        self.permits = lru_cache(maxsize=65536)(self._permits)
        self.opened = lru_cache(maxsize=65536)(self._opened)

    def _permits(self, address: str) -> bool:
        """Whether a connection to this address (a literal) may be made. A text that is none is refused."""
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return all(self._one(form) for form in _forms(parsed))

    def refusal(self, address: str) -> str:
        """Why an address is refused, '' where it is not."""
        if self.permits(address):
            return ""
        parsed = _forms(ipaddress.ip_address(address.partition("%")[0]))[-1]
        for is_one, what in (
            (parsed.is_loopback, "a loopback address"),
            (parsed.is_link_local, "a link-local address, as cloud metadata has"),
            (parsed.is_multicast, "a multicast address"),
            (parsed.is_private, "a private or reserved address"),
        ):
            if is_one:
                return what
        return "not a public address"

    def _opened(self, address: str) -> bool:
        """Whether the operator has named a network that this address is in: it is his own, or a test."""
        try:
            forms = _forms(ipaddress.ip_address(address.partition("%")[0]))
        except ValueError:
            return False
        return any(map(self._is_named, forms))

    def _is_named(self, address: Address) -> bool:
        return any(address in network for network in self.allowed if network.version == address.version)

    def _one(self, address: Address) -> bool:
        return self._is_named(address) or _is_public(address)


def _is_public(address: Address) -> bool:
    """Whether a site may be on this address (IANA special-purpose address registries)."""
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def is_loopback(address: str) -> bool:
    """Whether a literal address belongs to this machine's loopback device."""
    try:
        return all(form.is_loopback for form in _forms(ipaddress.ip_address(address.partition("%")[0])))
    except ValueError:
        return False


def _forms(address: Address) -> list[Address]:
    """The address and, where it wraps an IPv4 address, what it wraps: the wrapped one is what answers."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return [address.ipv4_mapped]
        if address.sixtofour:
            return [address, address.sixtofour]
        if address.teredo:
            return [address, *address.teredo]
        if address in _NAT64:
            return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
        if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP:
            return [address, ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    return [address]


def parse_network(text: str) -> Network:
    """A network or single address as the operator wrote it; IPv4 in IPv6 as what is meant. Raises ValueError that says
    what is wrong."""
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ValueError(f"'{text}' is not a network like 127.0.0.0/8") from None
    meant = getattr(network.network_address, "ipv4_mapped", None)
    return ipaddress.ip_network(f"{meant}/{network.prefixlen - 96}") if meant and network.prefixlen >= 96 else network
