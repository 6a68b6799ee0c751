"""Files that options name, which a client would miss only when it connects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path


def find_unreadable(named: Mapping[str, str | None]) -> Iterator[str]:
    """What is wrong with the files. named: what names each -> its path; None or empty for no file.

    The path is not shown: it may stand where a secret was meant.
    """
    for name, path in named.items():
        if not path:
            continue
        try:
            Path(path).open("rb").close()
        except IsADirectoryError:
            yield f"{name} names a folder: name a file"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it has a null byte"
            yield f"{name} names a file that cannot be read: {str(why).lower()}"
