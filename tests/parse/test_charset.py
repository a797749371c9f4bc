"""Bytes of a page to text: byte order mark, header, declaration, guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl.parse.charset import PRESCAN_BYTES, decode

PE = "Привет"


@pytest.mark.parametrize(
    ("body", "content_type", "text", "name"),
    [
        # A byte order mark beats everything (case 35).
        (b"\xef\xbb\xbf" + PE.encode(), "text/html; charset=cp1251", PE, "utf-8"),
        (b"\xff\xfe" + PE.encode("utf-16-le"), "text/html; charset=utf-8", PE, "utf-16-le"),
        (b"\xfe\xff" + PE.encode("utf-16-be"), None, PE, "utf-16-be"),
        # Then the header, however it is written.
        (PE.encode("cp1251"), "text/html; charset=windows-1251", PE, "windows-1251"),
        (PE.encode("cp1251"), 'text/html;charset="Windows-1251"', PE, "windows-1251"),
        (PE.encode("cp1251"), "text/html; charset = 'x-cp1251'", PE, "windows-1251"),
        (PE.encode("cp1251"), "text/html; charset=win-1251", PE, "windows-1251"),
        (PE.encode("koi8_r"), "text/html; charset=KOI8-R, text/html", PE, "koi8-r"),
        (b'<meta charset="koi8-r">\xe9', "text/html; charset=latin1", '<meta charset="koi8-r">é', "windows-1252"),
        # Then the page's own word.
        (b"<meta charset=windows-1250>\xe8", "text/html", "<meta charset=windows-1250>č", "windows-1250"),
        (
            b'<META content="text/html; charset=windows-1250" HTTP-EQUIV="Content-Type">\xe8',
            None,
            '<META content="text/html; charset=windows-1250" HTTP-EQUIV="Content-Type">č',
            "windows-1250",
        ),
        (
            b'<?xml version="1.0" encoding="koi8-r"?>\xd0',
            None,
            '<?xml version="1.0" encoding="koi8-r"?>п',
            "koi8-r",
        ),
        # Then a guess.
        ("naïve".encode(), None, "naïve", "utf-8"),
        (b"caf\xe9 \x80", None, "café €", "windows-1252"),
        (b"", None, "", "utf-8"),
    ],
)
def test_bytes_are_read_in_the_order_that_browsers_use(body, content_type, text, name):
    assert decode(body, content_type) == (text, name)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("latin-1", "windows-1252"),
        ("ISO-8859-1", "windows-1252"),
        ("us-ascii", "windows-1252"),
        ("iso-8859-9", "windows-1254"),
        ("tis-620", "windows-874"),
        ("ks_c_5601-1987", "euc-kr"),
        ("x-sjis", "shift_jis"),
        ("big5-hkscs", "big5"),
        ("iso-8859-8-i", "iso-8859-8"),
        ("x-mac-cyrillic", "x-mac-cyrillic"),
        ("unicode-1-1-utf-8", "utf-8"),
        ("cp437", "cp437"),
    ],
)
def test_labels_mean_what_the_encoding_standard_says(label, name):
    assert decode(b"<p>", f"text/html; charset={label}") == ("<p>", name)


@pytest.mark.parametrize("label", ["gb2312", "gbk", "GB_2312-80", "x-gbk"])
def test_chinese_labels_are_read_by_the_superset(label):
    """Case 36: the first character is in GBK only, 0x80 is the euro sign there."""
    assert decode("镕".encode("gbk") + b"\x80", f"text/html; charset={label}") == ("镕€", "gb18030")


@pytest.mark.parametrize(
    "label", ["x-nonsense", "", "utf-7", "hex", "rot13", "cp037", "idna", "unicode_escape", "utf-32", "\0", "é"]
)
def test_a_label_that_names_no_text_encoding_is_ignored(label):
    body = b"<meta charset=koi8-r>\xd0"
    assert decode(body, f"text/html; charset={label}") == ("<meta charset=koi8-r>п", "koi8-r")
    assert decode(body[-1:], f"text/html; charset={label}") == ("Ð", "windows-1252")


@pytest.mark.parametrize(
    "body",
    [
        b'<!-- <meta charset="koi8-r"> --><p>\xe9',
        b'<meta name="description" content="charset=koi8-r"><p>\xe9',
        b'<meta charset="x-nonsense"><p>\xe9',
        b"<p title='charset=koi8-r'>\xe9",
        b" " * PRESCAN_BYTES + b"<meta charset=koi8-r>\xe9",
    ],
)
def test_what_is_no_declaration_is_not_taken_for_one(body):
    assert decode(body, None)[1] == "windows-1252"


def test_a_meta_that_says_utf_16_means_utf_8():
    assert decode("<meta charset=utf-16>é".encode(), None) == ("<meta charset=utf-16>é", "utf-8")


@pytest.mark.parametrize("label", ["utf-16", "utf-16le", "utf-16be", "ucs-2"])
def test_a_header_that_says_utf_16_does_not_destroy_an_ascii_page(label):
    text, name = decode(b'<a href="/x">x</a>', f"text/html; charset={label}")
    assert (text, name) == ('<a href="/x">x</a>', "utf-8")


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_real_utf_16_is_read_in_its_own_byte_order(codec):
    page = f"<a href='/x'>{PE}</a>"
    assert decode(page.encode(codec), "text/html; charset=utf-16") == (page, codec.replace("16-", "16"))


def test_bytes_that_do_not_fit_become_replacement_characters():
    assert decode(b"a\xffb", "text/html; charset=utf-8") == ("a\ufffdb", "utf-8")


@given(
    st.one_of(st.binary(), st.binary().map(lambda b: b"<meta charset=" + b), st.just(b"\0<\0a\0")),
    st.one_of(
        st.none(),
        st.text(),
        st.sampled_from(
            [
                "utf-8",
                "utf-16",
                "gbk",
                "iso-2022-jp",
                "shift_jis",
                "euc-jp",
                "euc-kr",
                "big5",
                "hz",
                "iso2022_kr",
                "utf_16",
                "cp932",
            ]
        ).map("text/html; charset={}".format),
    ),
)
def test_no_bytes_and_no_header_raise(body, content_type):
    text, name = decode(body, content_type)
    assert isinstance(text, str)
    assert name
