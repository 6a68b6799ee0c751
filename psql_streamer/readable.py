"""Which of several connections can be read, for any number of open files.

select(2) takes descriptors below 1024 alone, whatever the limit of the process is (select(2), FD_SETSIZE): some fifty
sources with their sinks have more. It is asked first, because poll(2) counts in milliseconds, and a reader waits less.
"""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Protocol, TypeVar


class HasDescriptor(Protocol):
    """A socket, or what has one."""

    def fileno(self) -> int:
        """Its descriptor."""


Waited = TypeVar("Waited", bound=HasDescriptor | int)


def wait_for_readable(
    reading: Sequence[Waited], seconds: float, writing: Sequence[HasDescriptor] = ()
) -> Sequence[Waited]:
    """Those of `reading` that can be read, as soon as there is one, or one of `writing` can be written; none when the
    time is over. Raises OSError and ValueError for those that are closed.
    """
    try:
        return select.select(reading, writing, [], seconds)[0]
    except ValueError:
        return _poll_for_readable(reading, seconds, writing)


def _poll_for_readable(reading: Sequence[Waited], seconds: float, writing: Sequence[HasDescriptor]) -> Sequence[Waited]:
    wanted: dict[int, int] = {_get_descriptor(one): select.POLLIN for one in reading}
    for one in writing:
        wanted[one.fileno()] = wanted.get(one.fileno(), 0) | select.POLLOUT
    poll = select.poll()
    for descriptor, events in wanted.items():
        poll.register(descriptor, events)
    came = dict(poll.poll(math.ceil(seconds * 1000)))
    # What has hung up or failed says so when it is read.
    return [one for one in reading if came.get(_get_descriptor(one), 0) & ~select.POLLOUT]


def _get_descriptor(one: HasDescriptor | int) -> int:
    return one if isinstance(one, int) else one.fileno()
