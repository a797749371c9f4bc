"""Keys are short hashes that depend on the install's seed and on nothing ambiguous."""

from hypothesis import assume, given
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from frontier.urls import host_key, url_hash

SEEDS = st.integers(0, 2**64 - 1)


def test_a_url_hash_is_the_head_of_the_seeded_xxh3_128():
    assert url_hash("http://h1.test/", 7) == xxh3_128_digest(b"http://h1.test/", 7)[:12]
    assert len(url_hash("", 0)) == 12


def test_hashes_are_the_same_on_every_machine():
    assert url_hash("http://h1.test/", 7).hex() == "3cd19c0dd5c1ecbeab18a348"
    assert host_key(3, "h1.test:8080", 7).hex() == "7a73e34caeb2465a2f36947f130520b7"


@given(SEEDS, SEEDS)
def test_another_seed_gives_another_hash(one, other):
    assume(one != other)
    assert url_hash("http://h1.test/", one) != url_hash("http://h1.test/", other)
    assert host_key(1, "h1.test", one) != host_key(1, "h1.test", other)


def test_a_campaign_and_a_host_cannot_be_confused():
    pairs = [(1, "1.test"), (11, ".test"), (1, "1"), (11, ""), (1, ""), (1, "\x001"), (0, "h1.test")]
    keys = {host_key(campaign, host, 7) for campaign, host in pairs}
    assert len(keys) == len(pairs)
    assert {len(key) for key in keys} == {16}
