"""What runs beside a block of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def run_beside(*works: Callable[[Event], None]) -> Iterator[None]:
    """Each in a thread of its own. When the block ends the event is set, and they are waited for."""
    ended = Event()
    threads = [Thread(target=work, args=(ended,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
