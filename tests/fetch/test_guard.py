"""Which addresses may be dialled: public ones, and what the operator has named. In whatever form they come."""

import pytest

from crawl.fetch.guard import Guard

REFUSED = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.66.6.6", "169.254.169.254", "172.16.0.1"),
    *("192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("168.63.129.16", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fc00::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "100::1", "4000::1", "5f00::1"),
    *("2001::1", "2001:db8::1", "3fff::1"),
    # IPv4 in IPv6: mapped, compatible, 6to4, Teredo, NAT64 well known and local, ISATAP.
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::8.8.8.8", "::a00:1", "2002:7f00:1::", "2002:808:808::"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "64:ff9b:1::808:808"),
    *("2001:4860::5efe:7f00:1", "2001:4860::200:5efe:a9fe:a9fe"),
    *("", "localhost", "0177.0.0.1", "0x7f.1", "127.1", "2130706433", "::ffff:127.1"),
]
PERMITTED = [
    *("8.8.8.8", "1.1.1.1", "2606:4700::1111", "2001:4860:4860::8888", "2a00:1450::1"),
    *("::ffff:8.8.8.8", "64:ff9b::808:808", "2001:4860::5efe:808:808"),
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_no_public_address_is_refused(address: str) -> None:
    assert not Guard().permits(address)


@pytest.mark.parametrize("address", PERMITTED)
def test_public_addresses_are_permitted(address: str) -> None:
    assert Guard().permits(address)


@pytest.mark.parametrize(
    ("network", "address", "permitted"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.0/8", "::ffff:127.0.0.1", True),
        ("127.0.0.0/8", "::1", False),
        ("127.0.0.0/8", "10.0.0.1", False),
        ("127.0.0.0/8", "::127.0.0.1", False),
        ("10.0.0.0/8", "64:ff9b::a00:1", True),
        ("fd00::/8", "fd00::1", True),
        ("fd00::/8", "fc00::1", False),
        ("2001:4860::/32", "2001:4860::5efe:7f00:1", False),
        ("168.63.129.16", "168.63.129.16", True),
    ],
)
def test_the_operator_opens_what_he_names_and_no_more(network: str, address: str, permitted: bool) -> None:
    assert Guard([network]).permits(address) is permitted


@pytest.mark.parametrize(
    ("allowed", "address", "other"),
    [
        ("::ffff:7f00:1", "127.0.0.1", "127.0.0.2"),
        ("::ffff:127.0.0.0/104", "127.9.9.9", "10.0.0.1"),
        ("::ffff:127.0.0.0/104", "::ffff:127.9.9.9", "::1"),
    ],
)
def test_ipv4_that_is_allowed_in_the_form_of_ipv6_is_allowed(allowed: str, address: str, other: str) -> None:
    guard = Guard([allowed])
    assert guard.permits(address)
    assert not guard.permits(other)
