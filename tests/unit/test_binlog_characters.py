"""Texts of character sets that are not UTF-8, from the bytes of the binary log."""

from __future__ import annotations

import pytest

from psql_streamer.binlog.charsets import decode_characters


@pytest.mark.parametrize(
    ("codec", "text", "shown"),
    [
        ("cp1250", b"a\x81b", "a?b"),
        ("ascii", b"a\x80", "a?"),
        ("tis-620", b"\xa1\xff", "\u0e01\ufffd"),
        ("big5", b"\xa4\xa4\xf9\xd6\xa3\xc0a", "\u4e2d\u7881?a"),
        ("cp932", b"\xb1\x81\xad\x93\xfa", "\uff71?\u65e5"),
        ("euc-jp", b"\xf5\xa1\x8f\xf5\xa1\xa1\xc0", "\ue000\ue3ac\\"),
        ("gb18030", b"\xfe\x39\xfe\x39a", "?a"),
    ],
)
def test_a_code_that_python_does_not_have_is_what_the_server_shows(codec: str, text: bytes, shown: str) -> None:
    assert decode_characters(text, codec) == shown


@pytest.mark.parametrize(
    ("codec", "text"), [("utf-8", b"\xff"), ("utf-16-be", b"\xd8\0"), ("big5", b"\xa4"), ("euc-jp", b"\x8f\xf5")]
)
def test_bytes_that_are_no_code_are_refused(codec: str, text: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        decode_characters(text, codec)
