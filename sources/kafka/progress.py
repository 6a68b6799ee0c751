"""How far a member of a group is in each of its partitions: given out, durable, committed, and how much is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sources.kafka.offsets import Offsets, Partition


class Progress:
    """durable: offsets in front of which every sink has all, from the session before. Its owner locks it."""

    def __init__(self, durable: Offsets) -> None:
        self._durable = dict(durable)
        self._lags: dict[Partition, int] = {}
        self._delivered: dict[Partition, int] = {}
        self._confirmed: dict[Partition, int] = {}
        self._sent: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._started: dict[Partition, int] = {}
        self._first: dict[Partition, int] = {}
        self._came: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._empty: dict[Partition, tuple[int, int]] = {}
        self._repeated: dict[Partition, int] = {}
        self._asked: Offsets = {}
        self._offered: Offsets = {}

    @property
    def lags(self) -> Mapping[Partition, int]:
        """The partitions, each with the records between it and the partition's end; -1: not known yet."""
        return self._lags

    def begin(self, partition: Partition, committed: int, start: int, on_its_way: int = -1, first: int = 0) -> None:
        """It is given to the member. committed: the group's offset; negative: none. start: the first offset to read;
        negative: the oldest. on_its_way: records in front of this one may be on their way to sinks, since the session
        before; negative: none are. first: where the oldest was just now.

        What is on its way and read again counts when it is durable for the second time.
        """
        self._lags[partition] = -1
        self._ends.pop(partition, None)
        self._committed[partition] = self._sent[partition] = max(committed, -1)
        self._confirmed.pop(partition, None)
        self._first[partition] = self._came[partition] = start if start >= 0 else first
        self._empty.pop(partition, None)
        self._started[partition] = start
        durable = self._durable.get(partition, -1)
        if on_its_way > max(start, durable):
            self._repeated[partition] = on_its_way
        elif on_its_way >= 0 and committed < start <= on_its_way:
            self._started[partition] = -1
            self._delivered[partition] = start
            self._confirm(partition, min(start, durable))

    def drop(self, partitions: Iterable[Partition]) -> None:
        """They are the member's no more."""
        for partition in partitions:
            for known in (
                self._lags,
                self._delivered,
                self._confirmed,
                self._sent,
                self._committed,
                self._started,
                self._first,
                self._came,
                self._repeated,
                self._ends,
            ):
                known.pop(partition, None)
            self._empty.pop(partition, None)

    def note_came(self, offsets: Offsets) -> None:
        """The client has brought the records in front of these."""
        self._came |= offsets

    def note_empty(self, partition: Partition, end: int) -> None:
        """Between the last record that came and this offset there is none that is seen: there are the ends of
        transactions, and what was aborted.
        """
        if partition in self._lags and self._came[partition] < end:
            self._empty[partition] = (self._came[partition], end)

    def give(self, offsets: Offsets) -> None:
        """What lies in front of these was given out."""
        self._delivered |= offsets

    def give_empty(self) -> Offsets:
        """The ends that were noted behind the last records, which are given out with this. All that came must have been
        given out.
        """
        found = {partition: end for partition, (last, end) in self._empty.items() if last == self._came[partition]}
        self._empty.clear()
        self.note_came(found)
        self.give(found)
        return found

    def give_back(self, given: Iterable[Partition], offsets: Offsets) -> None:
        """Of these partitions no more was given out than what lies in front of the offsets."""
        self._delivered |= {partition: offsets.get(partition, -1) for partition in given}

    def give_back_behind(self, offsets: Offsets) -> None:
        """No more was given out than what lies in front of these."""
        self._delivered = {
            partition: min(offset, offsets.get(partition, -1)) for partition, offset in self._delivered.items()
        }

    def confirm(self, offsets: Offsets) -> None:
        """Every sink has what lies in front of these."""
        self._durable.update(offsets)
        for partition, offset in offsets.items():
            if partition not in self._repeated:
                self._confirm(partition, offset)
            elif offset >= self._repeated[partition]:
                del self._repeated[partition]

    def find_unconfirmed(self, partitions: Iterable[Partition] | None = None) -> list[Partition]:
        """Those of which not every sink has what was given out; of all, if none are named."""
        asked = {**self._delivered, **self._repeated} if partitions is None else partitions
        return [one for one in asked if one in self._repeated or self._is_unconfirmed(one)]

    def find_unconfirmed_offsets(self, partitions: Iterable[Partition] | None = None) -> Offsets:
        """The same with the offsets in front of which it was given out."""
        given = {**self._delivered, **self._repeated}
        return {one: given[one] for one in self.find_unconfirmed(partitions)}

    def find_not_durable(self, offsets: Offsets) -> list[Partition]:
        """Those of which not every sink has what lies in front of these offsets, from whichever session it is."""
        return [one for one, offset in offsets.items() if offset > self._durable.get(one, -1)]

    def take_due(self) -> Offsets:
        """Offsets to be committed, which are taken for sent from now on."""
        due = {
            partition: offset
            for partition, offset in self._confirmed.items()
            if partition in self._lags and offset > self._sent[partition]
        }
        self._sent |= due
        return due

    def offer(self, offsets: Offsets) -> Offsets:
        """What a transaction with the records in front of these is to commit. Asked for the same offsets until it is
        committed: who asks for others has committed what was offered before.
        """
        if offsets != self._asked:
            for partition, offset in self._offered.items():
                if partition in self._sent:
                    self._sent[partition] = max(offset, self._sent[partition])
            self._asked = offsets
        self._offered = {
            partition: offset
            for partition, offset in offsets.items()
            if partition in self._lags and self._sent[partition] < offset <= self._delivered.get(partition, -1)
        }
        return self._offered

    def send_again(self, partitions: Iterable[Partition]) -> None:
        """The commit of these has failed."""
        for partition in partitions:
            if partition in self._sent:
                self._sent[partition] = self._committed[partition]

    def note_end(self, partition: Partition, end: int) -> None:
        """The offset behind the last record of a partition."""
        if end >= 0 and partition in self._lags:
            # What the client knows of a partition from which nothing is fetched is old.
            end = self._ends[partition] = max(end, self._ends.get(partition, 0))
            given = self._delivered.get(partition, -1)
            reached = given if given >= 0 else max(0, self._sent[partition], self._first[partition])
            self._lags[partition] = max(0, end - reached)

    def list_reached(self) -> Offsets:
        """Of each partition the offset in front of which all has come."""
        return {one: max(came, self._empty.get(one, (0, 0))[1]) for one, came in self._came.items()}

    def list_ends(self) -> Offsets:
        """Of each partition the offset behind its last record, as far as it is known."""
        return dict(self._ends)

    def forget_ends(self, partitions: Iterable[Partition]) -> None:
        """It is not known any more where these end."""
        self._lags |= {one: -1 for one in partitions if one in self._lags}

    def _is_unconfirmed(self, partition: Partition) -> bool:
        durable = max(self._confirmed.get(partition, -1), self._started.get(partition, -1))
        return self._delivered.get(partition, -1) > durable

    def _confirm(self, partition: Partition, offset: int) -> None:
        """What this member has not given out is not its to confirm: an operator or another member may have set it."""
        if self._confirmed.get(partition, -1) < offset <= self._delivered.get(partition, -1):
            self._confirmed[partition] = offset
