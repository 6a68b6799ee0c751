"""Regular expressions of topics, which the client reads as POSIX's extended ones, and the service as Python's.

Those that mean something else to the client would match no topic in silence.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r"\\.|\[\^?\]?[^\]]*\]|.", re.DOTALL)
"""A character behind a backslash, a set, or any other character."""

_SAME_BACKSLASHES = frozenset(r".^$*+?()[]{}|/_-\wWsSbB")
_PERL = re.compile(r"\(\?|[*+?}][*+?]")


def require_same_meaning(pattern: str) -> None:
    """ValueError, with what to write, for one that the client does not read as Python does."""
    parts = _PARTS.findall(pattern)
    for part in parts:
        if part[0] == "[" and (part[1:2] == "[" or any(mark in part[1:] for mark in ("[:", "[.", "[="))):
            raise ValueError("has a class of characters as [[:alpha:]]: write [a-z]")
        if part[0] == "[" and "\\" in part:
            raise ValueError(f"has a backslash in {part}, where it stands for itself: write [0-9], [.] or [a-z_]")
        if part[0] == "\\" and part[1:] not in _SAME_BACKSLASHES:
            raise ValueError(f"has {part}, which POSIX's regular expressions do not have: write [0-9] for a digit")
    if found := _PERL.search("".join(part if len(part) == 1 else "x" for part in parts)):
        raise ValueError(f"has {found[0]}, which POSIX's regular expressions do not have: write it without")
