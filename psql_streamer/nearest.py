"""What somebody may have meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_LISTED = 40
"""Up to this many known names are listed when none of them is near."""


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """What to say after a name that is not known: `; did you mean postgres?`, else what is known."""
    by_fold = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), by_fold, n=1)
    if close:
        return f"; did you mean {by_fold[close[0]]}?"
    return f"; known: {', '.join(by_fold.values())}" if 0 < len(by_fold) <= _MOST_LISTED else ""
