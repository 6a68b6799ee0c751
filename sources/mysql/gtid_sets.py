"""Which transactions were executed: MySQL's sets of GTIDs, and MariaDB's last GTID of each domain.

MySQL 8.4 Reference Manual, "GTID Format and Storage"; MariaDB Knowledge Base, "Global Transaction ID".
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from struct import pack
from typing import Self, TypeAlias

Intervals: TypeAlias = list[tuple[int, int]]
"""Numbers, first and last, that do not touch each other, in increasing order."""

_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")


class Executed(ABC):
    """Transactions that lie behind. A source adds each at its commit, and asks the server for all others."""

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """What a server writes. ValueError when it is something else."""

    @abstractmethod
    def add(self, source: str, number: int) -> None:
        """One more. source, number: as binlog.events.Gtid has them."""

    @abstractmethod
    def holds(self, source: str, number: int) -> bool:
        """Whether a transaction lies behind."""

    @abstractmethod
    def count_lacking(self, other: Self) -> int:
        """How many transactions of `other` do not lie behind."""

    @abstractmethod
    def find_last(self, server: str) -> tuple[str, int]:
        """What numbers of a server's transactions count in (SourceInfo.identity), and the last one that lies behind.

        server: its uuid, empty for MariaDB's, of which the first domain is meant.
        """

    def drop_domains(self, domains: Iterable[int]) -> Self:  # noqa: ARG002 - MySQL has none
        """What lies behind in other domains of MariaDB's."""
        return self

    @abstractmethod
    def holds_any_of(self, server: str) -> bool:
        """Whether a server gave any of the GTIDs itself; of MariaDB's, any of the last ones. server: MySQL's uuid, or
        MariaDB's server id.
        """

    @abstractmethod
    def __str__(self) -> str:
        """As the server writes it."""

    def includes(self, other: Self) -> bool:
        """Whether all of another's lie behind."""
        return not self.count_lacking(other)


class GtidSet(Executed):
    """MySQL's. A source is a server's uuid, with `:tag` where its transactions are tagged."""

    def __init__(self, intervals: Mapping[str, Intervals] | None = None) -> None:
        self._of = {source: list(found) for source, found in (intervals or {}).items()}

    @classmethod
    def parse(cls, text: str) -> Self:
        """ValueError when it is no set of GTIDs."""
        found = cls()
        for one in filter(None, (part.strip() for part in text.lower().split(","))):
            uuid, *parts = (part.strip() for part in one.split(":"))
            if not _UUID.fullmatch(uuid) or not parts:
                raise ValueError("is not a set of GTIDs")
            source = uuid
            for part in parts:
                if numbers := _NUMBERS.fullmatch(part):
                    found._add(source, int(numbers[1]), int(numbers[2] or numbers[1]))
                elif _TAG.fullmatch(part):
                    source = f"{uuid}:{part}"
                else:
                    raise ValueError("is not a set of GTIDs")
        return found

    def add(self, source: str, number: int) -> None:
        self._add(source, number, number)

    def holds(self, source: str, number: int) -> bool:
        held = self._of.get(source, [])
        at = bisect_right(held, (number, 2**64)) - 1
        return at >= 0 and held[at][1] >= number

    def count_lacking(self, other: GtidSet) -> int:
        return sum(
            last - first + 1 - self._count_overlap(source, first, last)
            for source, intervals in other._of.items()
            for first, last in intervals
        )

    def find_last(self, server: str) -> tuple[str, int]:
        held = self._of.get(server)
        return server, held[-1][1] if held else 0

    def holds_any_of(self, server: str) -> bool:
        return any(source.partition(":")[0] == server for source in self._of)

    def encode(self) -> bytes:
        """As COM_BINLOG_DUMP_GTID has it: for each source its uuid, its tag where some source has one, and intervals
        whose ends are exclusive (MySQL source, Gtid_set::encode).
        """
        tagged = any(":" in source for source in self._of)
        # Bytes 0 and 7 are the format, 1 for tagged; between them is the number of sources (encode_nsids_format).
        parts = [pack("<Q", len(self._of) << 8 | 1 << 56 | 1 if tagged else len(self._of))]
        for source, intervals in sorted(self._of.items()):
            uuid, _, tag = source.partition(":")
            parts.append(bytes.fromhex(uuid.replace("-", "")))
            if tagged:
                parts.append(bytes([len(tag) << 1]) + tag.encode())
            parts.append(pack("<Q", len(intervals)))
            parts += [pack("<QQ", first, last + 1) for first, last in intervals]
        return b"".join(parts)

    def __str__(self) -> str:
        return ",".join(
            ":".join([source, *(f"{first}-{last}" if last > first else str(first) for first, last in intervals)])
            for source, intervals in sorted(self._of.items())
        )

    def _count_overlap(self, source: str, first: int, last: int) -> int:
        return sum(max(0, min(last, high) - max(first, low) + 1) for low, high in self._of.get(source, []))

    def _add(self, source: str, first: int, last: int) -> None:
        held = self._of.setdefault(source, [])
        if held and first == held[-1][1] + 1:
            held[-1] = (held[-1][0], last)
            return
        held.append((first, last))
        if len(held) > 1 and held[-2][1] + 1 >= first:
            held[:] = _merge_intervals(sorted(held))


def _merge_intervals(intervals: Intervals) -> Iterator[tuple[int, int]]:
    found: Intervals = []
    for first, last in intervals:
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return iter(found)


class DomainPositions(Executed):
    """MariaDB's: what came last in each domain. A source is `domain-server`."""

    def __init__(self, last: Mapping[int, tuple[int, int]] | None = None) -> None:
        self._last = dict(last or {})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of several GTIDs in a domain the greatest counts, as in @@gtid_binlog_state. ValueError for no GTIDs."""
        found: dict[int, tuple[int, int]] = {}
        for one in filter(None, (part.strip() for part in text.split(","))):
            numbers = _MARIADB.fullmatch(one)
            if numbers is None:
                raise ValueError("is not a list of GTIDs")
            domain, server, number = (int(numbers[place]) for place in (1, 2, 3))
            if domain not in found or found[domain][1] < number:
                found[domain] = (server, number)
        return cls(found)

    def add(self, source: str, number: int) -> None:
        domain, _, server = source.partition("-")
        self._last[int(domain)] = (int(server), number)

    def holds(self, source: str, number: int) -> bool:
        held = self._last.get(int(source.partition("-")[0]))
        return held is not None and held[1] >= number

    def find_last(self, server: str) -> tuple[str, int]:  # noqa: ARG002 - see Executed.find_last
        domain = min(self._last, default=None)
        return ("", 0) if domain is None else (str(domain), self._last[domain][1])

    def holds_any_of(self, server: str) -> bool:
        return any(str(last) == server for last, _ in self._last.values())

    def find_missing_domains(self, other: DomainPositions) -> list[int]:
        """The domains of `other` of which nothing lies behind."""
        return sorted(set(other._last) - set(self._last))

    def drop_domains(self, domains: Iterable[int]) -> Self:
        return type(self)({one: last for one, last in self._last.items() if one not in set(domains)})

    def count_lacking(self, other: DomainPositions) -> int:
        return sum(max(0, number - self._last.get(domain, (0, 0))[1]) for domain, (_, number) in other._last.items())

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items()))
