"""What the thread of a group's member shares with the other threads: records that nobody has taken, and what became of
those that were taken.

A member gives a partition up when what was taken of it is durable. Offsets are committed for records that every sink
has.

Where the sink's transactions commit the offsets, brokers take them only from the generation of the group that they
know. The member notes its own within each rebalance, and so knows that it had the partitions all the time since the
records were taken. Records on their way of partitions that others got must never be written: the service stops then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType

from psql_streamer.batching import LINGER_BYTES, LINGER_SECONDS, READ_AHEAD_BYTES
from psql_streamer.errors import SourceError, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import ConsumedOffsets
from sources.kafka.committing import add_topic_id
from sources.kafka.held import HeldRecords
from sources.kafka.membership import Membership
from sources.kafka.offsets import Offsets, Partition, TopicIds, list_partitions
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.progress import Progress
from sources.kafka.taken import Taken

_REVOKE_LOOK_SECONDS = 1.0
"""Between two looks at what a rebalance waits for, as /status says it."""


@dataclass(frozen=True, slots=True)
class MemberSummary:
    """partitions: that the member has, each with the records between it and the partition's end (-1: not known yet).
    problem: what is wrong at the moment, or what a rebalance waits for. missing: topics that do not exist. unmatched:
    regular expressions that no topic matches, looked at while it has no partitions. rebalances: that gave or took
    partitions. headerless: records whose headers cannot be read.
    """

    partitions: Mapping[Partition, int]
    problem: str
    missing: Sequence[str]
    unmatched: Sequence[str]
    rebalances: int
    headerless: int


class MemberState:
    """durable: offsets in front of which every sink has all. mark: what the metadata of commits begin with. left:
    offsets in front of which records of the session before may be on their way. ids: of topics, as far as they are
    known. Every function may be called from any thread, and only those that say so wait.
    """

    def __init__(
        self,
        options: KafkaSourceOptions,
        durable: Offsets,
        mark: str,
        left: Offsets = MappingProxyType({}),
        ids: TopicIds = MappingProxyType({}),
    ) -> None:
        self._options = options
        self._mark = mark
        self._ids = ids
        self._lock = threading.Condition()
        self._held = HeldRecords(options.batch_size, options.batch_bytes)
        self._progress = Progress(durable)
        self._begun: dict[Partition, int] = {}
        self._membership: Membership | None = None
        self._member = ""  # the last id that the group gave
        self._undelivered: SourceRefused | None = None
        self._left = dict(left)
        self._error: SourceError | None = None
        self._stopping = threading.Event()
        self._problem = self._commit_problem = self._unread_problem = ""
        self._missing: Sequence[str] = ()
        self._unmatched: Sequence[str] = ()
        self._rebalances = self._headerless = 0
        self._fast = False

    # What the source calls.

    def take(self, timeout: float) -> Taken | None:
        """Records in the order of their partitions, about a batch of them; None when nothing came for so long. No
        records, when brokers said that up to these offsets there are none.

        Raises what went wrong in the member's thread.
        """
        with self._lock:
            if not self._lock.wait_for(lambda: self._held or self._error, timeout):
                ends = self._progress.give_empty()
                return Taken([], 0, dict(ends)) if ends else None
            if self._fast:
                linger = min(LINGER_SECONDS, self._options.batch_flush_interval)
                self._lock.wait_for(lambda: self._held.size >= LINGER_BYTES or self._error, linger)
            if self._error is not None:
                raise self._error
            taken = self._held.take()
            self._progress.give(taken.offsets)
            self._fast = taken.size >= READ_AHEAD_BYTES
            self._lock.notify_all()
        return taken

    def take_begun(self) -> Offsets:
        """Where partitions begin that were given to the member since the last call; negative: not known."""
        with self._lock:
            begun, self._begun = self._begun, {}
            return begun

    def give_back(self, taken: Taken, offsets: Offsets) -> None:
        """Of what was taken, only what lies in front of these is on its way to the sinks."""
        with self._lock:
            self._progress.give_back(taken.offsets, offsets)

    def put_back(self, taken: Taken, offsets: Offsets) -> None:
        """Hold records again that were taken, in front of the others, but those of partitions that others got
        meanwhile. offsets: as give_back has them.
        """
        with self._lock:
            kept = taken.without(taken.offsets.keys() - self._progress.lags.keys())
            self._progress.give_back(kept.offsets, offsets)
            self._held.put_first(kept)
            self._lock.notify_all()

    def confirm(self, offsets: Offsets) -> None:
        """Every sink has what lies in front of these."""
        with self._lock:
            self._progress.confirm(offsets)
            self._lock.notify_all()

    @property
    def is_drained(self) -> bool:
        """Whether every sink has all that was taken."""
        with self._lock:
            return not self._progress.find_unconfirmed()

    def offer(self, offsets: Offsets) -> ConsumedOffsets:
        """See Source.find_consumed_offsets."""
        with self._lock:
            if self._undelivered is not None:
                raise self._undelivered
            if isinstance(self._error, SourceRefused):
                raise self._error
            if self._membership is None:
                raise SourceUnavailable(f"group {self._options.group_id} has not taken this instance in (again)")
            offered = self._progress.offer(offsets)
            return ConsumedOffsets(
                self._membership.metadata,
                [
                    (topic, number, offset, add_topic_id(self._mark, topic, self._ids))
                    for (topic, number), offset in offered.items()
                ],
            )

    def settle(self, offsets: Offsets) -> None:
        """Wait until every sink has what was taken; no more of it is on its way than what lies in front of these.

        SourceRefused when that takes longer than drainTimeout, or when others got what is on its way. SourceUnavailable
        when it is interrupted.
        """
        with self._lock:
            self._progress.give_back_behind(offsets)
            self._lock.wait_for(
                lambda: self._stopping.is_set() or not self._progress.find_unconfirmed(), self._options.drain_timeout
            )
            if self._stopping.is_set():
                raise SourceUnavailable("interrupted while it waited for the sinks")
            if self._undelivered is None and (left := self._progress.find_unconfirmed()):
                self._undelivered = SourceRefused(
                    f"group {self._options.group_id} has to be joined anew, and not every sink has what was read of "
                    f"{list_partitions(left)} after {self._options.drain_timeout:g} s",
                    "start this instance again, when the sinks are well",
                )
            if self._undelivered is not None:
                raise self._undelivered

    def leave(self, offsets: Offsets) -> Offsets:
        """Where records of an ended member may be on their way, in front of these offsets at most."""
        with self._lock:
            left = {**self._left, **self._progress.find_unconfirmed_offsets()}
            return {one: min(offset, offsets.get(one, -1)) for one, offset in left.items()}

    def summarize(self) -> MemberSummary:
        """How the member is doing."""
        with self._lock:
            problem = self._describe_problem() if self._error is None else str(self._error)
            return MemberSummary(
                dict(self._progress.lags),
                problem,
                self._missing,
                self._unmatched,
                self._rebalances,
                self._headerless,
            )

    def _describe_problem(self) -> str:
        said = [self._unread_problem, self._problem or self._commit_problem]
        return "; ".join(one for one in said if one)

    # How the member ends.

    @property
    def error(self) -> SourceError | None:
        """What ended the member, if something did."""
        with self._lock:
            return self._error

    def fail(self, error: SourceError) -> None:
        """End the member, and make `take` raise this. The first error counts."""
        with self._lock:
            self._error = self._error or error
            self._lock.notify_all()

    def fail_behind(self, error: SourceError) -> None:
        """The same, when every sink has what came in front of the error, or after drainTimeout. Waits."""
        with self._lock:
            self._problem = str(error)
            self._lock.wait_for(
                lambda: self.has_ended or not (self._held or self._progress.find_unconfirmed()),
                self._options.drain_timeout,
            )
        self.fail(error)

    def stop(self) -> None:
        """End the member, and wait for nothing any more."""
        self._stopping.set()
        with self._lock:
            self._lock.notify_all()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether the member is to end, by `stop` or by an error."""
        return self._stopping.is_set() or self._error is not None

    def wait_for_stop(self) -> None:
        """Wait until `stop` is called."""
        self._stopping.wait()

    # What the member's thread calls.

    @property
    def partitions(self) -> AbstractSet[Partition]:
        """Those that the member has."""
        with self._lock:
            return set(self._progress.lags)

    @property
    def size_of_record(self) -> int:
        """Bytes of one of the records that came last, about."""
        with self._lock:
            return self._held.size_of_record

    def hold(self, records: Taken) -> None:
        """Keep them until they are taken, but those of partitions that were given up in the poll that brought them."""
        with self._lock:
            kept = records.without(records.offsets.keys() - self._progress.lags.keys())
            self._progress.note_came(kept.offsets)
            self._held.put(kept)
            self._lock.notify_all()

    def note_empty(self, partition: Partition, end: int) -> None:
        """See Progress.note_empty."""
        with self._lock:
            self._progress.note_empty(partition, end)

    def wait_for_room(self, most: int, timeout: float) -> bool:
        """Wait until there is room below so many bytes, or the member has ended; False when neither comes in time."""
        with self._lock:
            return self._lock.wait_for(lambda: self.has_room(most), timeout)

    def has_room(self, most: int) -> bool:
        """Whether fewer bytes than these are held, or the member has ended."""
        return self._held.size < most or self.has_ended

    def take_due(self) -> Offsets:
        """Offsets to be committed, which are taken for sent from now on."""
        with self._lock:
            return self._progress.take_due()

    def send_again(self, partitions: Iterable[Partition]) -> None:
        """The commit of these has failed."""
        with self._lock:
            self._progress.send_again(partitions)

    def note_end(self, partition: Partition, end: int) -> None:
        """The offset behind the last record of a partition."""
        with self._lock:
            self._progress.note_end(partition, end)

    def count_headerless(self, records: int) -> None:
        """So many more have headers that cannot be read."""
        with self._lock:
            self._headerless += records

    @property
    def problem(self) -> str:
        """What is wrong at the moment, as far as it does not end the member; empty: nothing."""
        with self._lock:
            return self._problem

    def set_problem(self, problem: str) -> None:
        """What /status says from now on; empty: nothing is wrong."""
        with self._lock:
            self._problem = problem

    def set_commit_problem(self, problem: str) -> None:
        """What /status says, where it has nothing else to say; empty: commits are taken."""
        with self._lock:
            self._commit_problem = problem

    def set_unread_problem(self, problem: str) -> None:
        """Why something is not read; /status says it beside other problems. Empty: nothing keeps it from reading."""
        with self._lock:
            self._unread_problem = problem

    def forget_ends(self, partitions: Iterable[Partition]) -> None:
        """The ends of these are not known now."""
        with self._lock:
            self._progress.forget_ends(partitions)

    def list_reached(self) -> Offsets:
        """Of each partition the offset in front of which all has come."""
        with self._lock:
            return self._progress.list_reached()

    def list_ends(self) -> Offsets:
        """Of each partition the offset behind its last record, as far as it is known."""
        with self._lock:
            return self._progress.list_ends()

    @property
    def expects_partitions(self) -> bool:
        """Whether there are topics for which the group is asked."""
        with self._lock:
            return bool({*self._options.topics}.difference(self._missing, self._unmatched))

    def note_absent(self, missing: Iterable[str], unmatched: Iterable[str]) -> None:
        """Topics that do not exist, and regular expressions that no topic matches."""
        with self._lock:
            self._missing, self._unmatched = sorted(missing), sorted(unmatched)

    # What it calls within a rebalance.

    def begin(self, partition: Partition, committed: int, start: int, on_its_way: int = -1, first: int = 0) -> None:
        """It is given to the member. See Progress.begin."""
        with self._lock:
            self._progress.begin(partition, committed, start, on_its_way, first)
            self._begun[partition] = start

    def count_rebalance(self) -> None:
        """One more gave or took partitions."""
        with self._lock:
            self._rebalances += 1

    def note_membership(self, found: Membership | None) -> None:
        """Of now, in front of what the rebalance gives and takes; None: the group went on without the member."""
        with self._lock:
            self._membership = found
            if found is not None:
                if self._member not in ("", found.member):
                    self._stop_if_undelivered(self._progress.lags)
                self._member = found.member

    def forget(self, partitions: AbstractSet[Partition]) -> None:
        """Drop the records of these that nobody has taken."""
        with self._lock:
            self._held.forget(partitions)

    def drain(self, partitions: AbstractSet[Partition], most: float | None = None) -> None:
        """Wait until every sink has what was taken of these; after so many seconds, end the member. most: drainTimeout
        if none is given.
        """
        deadline = time.monotonic() + (self._options.drain_timeout if most is None else most)
        with self._lock:
            while (waiting := self._progress.find_unconfirmed(partitions)) and not self.has_ended:
                self._problem = f"a rebalance waits until every sink has the records of {list_partitions(waiting)}"
                self._lock.wait(min(_REVOKE_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
                if time.monotonic() > deadline:
                    self._stop_if_undelivered(waiting)
            self._problem = ""

    def find_left(self) -> Sequence[Partition]:
        """Partitions that the member was not given again, with records on their way since the session before."""
        with self._lock:
            return [one for one in self._progress.find_not_durable(self._left) if one not in self._progress.lags]

    def end_undelivered(self, partitions: Iterable[Partition]) -> None:
        """End the member: others have these partitions, with records on their way here."""
        with self._lock:
            self._end_undelivered(partitions)

    def find_unconfirmed(self, partitions: Iterable[Partition]) -> Sequence[Partition]:
        """Those of which not every sink has what was taken."""
        with self._lock:
            return self._progress.find_unconfirmed(partitions)

    def let_go(self, partitions: AbstractSet[Partition]) -> None:
        """Nobody will read these again: what was taken of them may come late, and no offset of it is committed."""
        with self._lock:
            self._progress.drop(partitions)
            self._held.forget(partitions)
            self._lock.notify_all()

    def drop(self, partitions: AbstractSet[Partition]) -> None:
        """They are the member's no more. What was taken of them, and is not durable, ends the member."""
        with self._lock:
            if not self._stopping.is_set():
                self._stop_if_undelivered(partitions)
            self._left |= self._progress.find_unconfirmed_offsets(partitions)
            self._progress.drop(partitions)
            self._held.forget(partitions)  # what was put back while the sinks were waited for
            self._rebalances += 1

    def _stop_if_undelivered(self, partitions: Iterable[Partition]) -> None:
        """Others have these partitions now, or soon. Its caller has the lock."""
        if waiting := self._progress.find_unconfirmed(partitions):
            self._end_undelivered(waiting)

    def _end_undelivered(self, partitions: Iterable[Partition]) -> None:
        self._undelivered = self._undelivered or _make_undelivered_error(partitions)
        self._error = self._error or self._undelivered
        self._lock.notify_all()


def _make_undelivered_error(partitions: Iterable[Partition]) -> SourceRefused:
    """Batches that are on their way must not be written any more: behind them another instance writes newer values."""
    return SourceRefused(
        f"this instance does not have {list_partitions(partitions)} in its group any more, and not every sink has what "
        "was read of them: another instance may read that again",
        "start this one again, when the sinks are well",
    )
