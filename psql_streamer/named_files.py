"""Files that options name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path


def make_absolute(path: Path) -> Path:
    """From the working folder on. As it is where that was removed: whoever opens it says that it is not there."""
    try:
        return path.absolute()
    except FileNotFoundError:
        return path


def say_absent(path: Path, what: str = "") -> str:
    """What there is to say of a path at which nothing can be seen; empty where something is. what: `file `."""
    try:
        path.stat()
    except FileNotFoundError:
        return f"there is no {what}{path}"
    except OSError as error:
        return f"{path} cannot be read ({str(error.strerror).lower()})"
    return ""


def find_unreadable(named: Mapping[str, str | None]) -> Iterator[str]:
    """What is wrong with files that a client would miss only when it connects.

    named: what names each -> its path; None or empty for no file.

    The path is not shown: it may stand where a secret was meant.
    """
    for name, path in named.items():
        if not path:
            continue
        try:
            if Path(path).is_fifo():  # opening it would wait for a writer
                yield f"{name} names a pipe, which can be read once only: name a file"
                continue
            Path(path).open("rb").close()
        except IsADirectoryError:
            yield f"{name} names a folder: name a file"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it has a null byte"
            yield f"{name} names a file that cannot be read: {str(why).lower()}"
