"""What must never be shown: which keys hold secrets, and how passwords are taken out of a text."""

from __future__ import annotations

import re

HIDDEN = "***"

_SECRET_KEY = re.compile(
    r"dsn|passw|passphrase|secret|token|credential|jaas|user\.?info|private|(?:ssl|tls)\.?key(?!\.?location|store\.?location)",
    re.IGNORECASE,
)
# user:password@ of a URL. The password runs to the last @ before a space: people forget to encode one.
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*):\S*@", re.IGNORECASE)
# password=x of libpq and JAAS strings and of URL queries, "password": "x" of JSON, PGPASSWORD=x of shells.
_ASSIGNED_PASSWORD = re.compile(
    r"""(\b[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|jaas\.config)[\w.-]*["']?\s*(?:=>?|:)\s*)"""
    r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|[^\s,;&]+)""",
    re.IGNORECASE | re.DOTALL,
)


def is_secret(key: str) -> bool:
    """Whether a key of this name holds something that is never shown, neither whole nor in part."""
    return _SECRET_KEY.search(key) is not None


def redact(text: str) -> str:
    """The text without the passwords in its URLs and in its key=value pairs."""
    return _ASSIGNED_PASSWORD.sub(rf"\1{HIDDEN}", _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text))
