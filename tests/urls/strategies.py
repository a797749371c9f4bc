"""Hypothesis strategies for links: plausible ones, broken ones, and pieces that trip rules and parsers."""

from hypothesis import strategies as st

from frontier.urls import Rules

SCHEMES = ["http://", "https://", "HTTP://", "http:", "https:\\\\", "//", "ftp://", ""]
USERINFO = ["", "", "", "u@", "u:p@", ":@", "@", "a@b:c@"]
HOSTS = [
    *("h1.test", "H1.TEST", "h1.test.", "www.example.com", "www.www.co.uk", "www.com", "www.localhost"),
    *("bücher.example", "xn--bcher-kva.example", "xn--a", "faß.de", "h%311.test", "a..b", ".", "a_b", "ß"),
    *("0x7f.1", "127.1", "256", "1.2.3.4.5", "[::1]", "[::ffff:1.2.3.4]", "[::1", "{x}", "a" * 64, ""),
]
PORTS = ["", "", "", ":80", ":443", ":8080", ":", ":0", ":99999", ":x", ":080"]
PATH_PIECES = [
    *("/", "/", "//", ".", "..", "/./", "/../", "%2e", "%2E%2e", "%", "%4", "%25", "%41", "%c3%a9", "41"),
    *("a", "é", "|", "[", "\\", " ", "{", "'", "@", ":", ";", "=", "\t", "\x7f", "(S(x))", "/(S(x))/", ")"),
    *(";jsessionid=1", "/..;sid=1", "index.html", "/index.php/", "/default.asp", "INDEX.HTM", "\U0001f600"),
]
QUERY_PIECES = [
    *(
        "&",
        "&",
        "=",
        "a",
        "b",
        "sid=1",
        "utm_source=x",
        "PHPSESSID",
        "%73id=2",
        "%26",
        "%",
        "%4",
        "%61",
        "31",
    ),
    *("?", "/", "..", "+", " ", "'", '"', "é", "[", "^", "\\", "#", "\n", "gclid", "%00"),
]
RULES = st.builds(Rules, *[st.booleans()] * 5)


def _pieces(pieces: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=8).map("".join)


@st.composite
def links(draw: st.DrawFn) -> str:
    """A link put together from pieces: often an http URL, sometimes relative, sometimes broken."""
    host = draw(st.sampled_from(HOSTS) | st.text(max_size=12))
    origin = draw(st.sampled_from(SCHEMES)) + draw(st.sampled_from(USERINFO)) + host
    path = draw(_pieces(PATH_PIECES) | st.text(max_size=12))
    link = origin + draw(st.sampled_from(PORTS)) + draw(st.sampled_from(["/", "/", ""])) + path
    if draw(st.booleans()):
        link += "?" + draw(_pieces(QUERY_PIECES) | st.text(max_size=12))
    return link + draw(st.sampled_from(["", "", "#", "#a?b", " \n"]))
