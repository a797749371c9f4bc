"""What holds for every string: one identity, found again from its own forms, and no surprise exception."""

from urllib.parse import urlsplit

from hypothesis import example, given, settings
from hypothesis import strategies as st

from frontier.urls import NO_RULES, URL, InvalidURL, Rules, canonicalise
from frontier.urls.canonical import MAX_URL_CHARS

from .strategies import RULES, links

ANY_TEXT = st.text(st.characters(codec=None))
EVERY = Rules(session_ids=True, tracking=True, trailing_slash=True, index_files=True, www=True)


def attempt(link: str, base: str | None = None, rules: Rules = NO_RULES) -> URL | None:
    try:
        return canonicalise(link, base, rules)
    except InvalidURL:
        return None


@settings(max_examples=1000)
@given(links(), RULES)
@example("http://h1.test/%4%31", EVERY)
@example("http://h1.test/..;jsessionid=1/x", EVERY)
@example("http://h1.test/index.html/index.html", EVERY)
@example("http://h1.test/?&sid=1", EVERY)
@example("http://www.www.example.com./(S(x))", EVERY)
def test_the_identity_is_found_again_from_the_canonical_and_the_fetch_form(link, rules):
    url = attempt(link, rules=rules)
    if url is not None:
        assert canonicalise(url.canonical, rules=rules)[1:] == url[1:]
        assert canonicalise(url.fetch, rules=rules) == url


@settings(max_examples=500)
@given(ANY_TEXT | ANY_TEXT.map("http://{}".format) | ANY_TEXT.map("http://h1.test/{}".format), RULES)
def test_any_text_gives_a_stable_identity_or_a_refusal(text, rules):
    url = attempt(text, rules=rules)
    if url is not None:
        assert canonicalise(url.canonical, rules=rules)[1:] == url[1:]
        assert canonicalise(url.fetch, rules=rules) == url


@settings(max_examples=500)
@given(links() | ANY_TEXT, links() | ANY_TEXT, RULES)
def test_any_base_gives_an_absolute_url_or_a_refusal(link, base, rules):
    url = attempt(link, base, rules)
    if url is not None:
        assert canonicalise(url.fetch, rules=rules) == url


@settings(max_examples=500)
@given(links(), RULES)
def test_every_form_is_clean(link, rules):
    url = attempt(link, rules=rules)
    if url is None:
        return
    for form in (url.fetch, url.canonical):
        parts = urlsplit(form)
        assert parts.scheme in ("http", "https")
        assert form.isascii()
        assert form.isprintable()
        assert len(form) <= MAX_URL_CHARS
        assert "@" not in parts.netloc
        assert "#" not in form
        assert " " not in form
        assert parts.path.startswith("/")
        assert not {".", ".."} & set(parts.path.split("/"))
    assert urlsplit(url.canonical).netloc == url.host


@given(links(), RULES)
def test_rules_leave_the_fetch_url_alone(link, rules):
    with_rules, without = attempt(link, rules=rules), attempt(link)
    if with_rules is not None and without is not None:
        assert with_rules.fetch == without.fetch


@given(st.lists(st.sampled_from(["a=1", "b", "c=", "%64=2", "e=é"]), unique=True, min_size=1), st.randoms())
def test_the_order_of_distinct_parameters_does_not_matter(parameters, random):
    shuffled = random.sample(parameters, len(parameters))
    one, other = (canonicalise("http://h1.test/?" + "&".join(order)) for order in (parameters, shuffled))
    assert one.canonical == other.canonical
