"""ETag and Last-Modified as they may be sent back: well-formed, or left out."""

import re
from email.utils import parsedate_to_datetime

MAX_ETAG_CHARS = 1000

# RFC 9110 section 8.8.3, without obs-text: bytes over 127 may have been of any encoding, and could not be sent back as
# they came.
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_DAY, _MONTH = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)", "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_WEEKDAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_TIME = r"\d\d:\d\d:\d\d"
# Section 5.6.7: the form that is to be sent, and the two old ones that are to be understood.
_HTTP_DATE = re.compile(
    rf"{_DAY}, \d\d {_MONTH} \d{{4}} {_TIME} GMT"
    rf"|{_WEEKDAY}, \d\d-{_MONTH}-\d\d {_TIME} GMT"
    rf"|{_DAY} {_MONTH} [\d ]\d {_TIME} \d{{4}}",
    re.ASCII,
)


def etag(value: str) -> str:
    """An entity tag as it came, weak or strong; empty when it is none, or too long to be kept."""
    return value if len(value) <= MAX_ETAG_CHARS and _ETAG.fullmatch(value) else ""


def last_modified(value: str) -> str:
    """An HTTP date as it came; empty when it is none."""
    if not _HTTP_DATE.fullmatch(value):
        return ""
    try:
        parsedate_to_datetime(value)
    except ValueError:  # the 31st of February
        return ""
    return value
