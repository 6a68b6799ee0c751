"""The content of a logical message in an event, of any size."""

from __future__ import annotations

import base64
import json
import tracemalloc

import pytest

from psql_streamer.events.format import render_content_member

SIZE = 1 << 20


def test_nothing_of_a_content_is_kept_when_it_is_written() -> None:
    tracemalloc.start()
    try:
        for number in range(8):
            render_content_member(b"%d" % number + b"x" * SIZE, b"content")
            render_content_member(b"\xff%d" % number + b"x" * SIZE, b"content")
        assert tracemalloc.get_traced_memory()[0] < SIZE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b'a "quoted" \\ text\n\x00\x1f', "žlutý 🐎".encode(), b"\xff\xfe"])
def test_a_content_is_what_it_was(content: bytes) -> None:
    found = json.loads(b"{%s}" % render_content_member(content, b"content"))
    held = found["content"].encode() if "content" in found else base64.b64decode(found["contentBase64"])
    assert held == content
