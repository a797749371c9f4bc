"""Which certificate authorities are trusted: the system's list, and those that the operator adds to it."""

import ssl
from pathlib import Path

import certifi

SYSTEM_FILE = "/etc/ssl/certs/ca-certificates.crt"
# The system's list, which its owner may have added to, or the one that SSL_CERT_FILE names in its place; the wheel's
# libcurl has none.
CA_FILE = next(
    (file for file in (ssl.get_default_verify_paths().cafile, SYSTEM_FILE) if file and Path(file).exists()),
    certifi.where(),
)


class InvalidAuthorities(ValueError):
    """A file of authorities cannot be used; the message says why."""


def with_added(added: str, directory: Path) -> str:
    """A file with the usual authorities and those of the PEM file `added`; it is written to `directory`.

    One file, because libcurl parses a file once and keeps the result for all its handles, which it does not do for
    bytes. Without `added` the usual file. Raises InvalidAuthorities.
    """
    if not added:
        return CA_FILE
    try:
        text = Path(added).read_text(encoding="ascii")
        ssl.create_default_context(cadata=text)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = "it holds no certificates in PEM" if isinstance(error, ssl.SSLError | ValueError) else error.strerror
        raise InvalidAuthorities(f"TRAWL_CA_FILE: {added} cannot be used: {reason}") from None
    directory.mkdir(parents=True, exist_ok=True)
    joined, part = directory / "authorities.pem", directory / "authorities.pem.part"
    part.write_text(f"{Path(CA_FILE).read_text(encoding='utf-8')}\n{text}", encoding="utf-8")
    part.replace(joined)
    return str(joined)
