"""What polls of the client bring: records, and errors of single topics."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from psql_streamer.errors import PositionRefused, SourceError, SourceUnavailable
from psql_streamer.event_reader import parsed
from sources.kafka.beginnings import describe_gap_remedy, require_no_gap
from sources.kafka.errors import MISSING, REFUSED, UNREADABLE, make_source_error
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.passing_errors import PassingErrors
from sources.kafka.subscribed import PATTERN_MARK
from sources.kafka.taken import Taken
from sources.kafka.unreadable_headers import replace_unreadable

_OF_ONE_PLACE = {KafkaError._AUTO_OFFSET_RESET, *UNREADABLE}
"""Errors of one place in a partition, which the client reports behind the records in front of it."""

_ENDS = {*REFUSED, *MISSING}
"""Errors of a topic behind which there is nothing to wait for in this session."""

_PART_OF_BATCH = 0.95
"""Of batchBytes: records that are a little larger than those before them still fit. Else they would be two batches."""

_FIRST_STEP, _MOST_STEP = 10, 640
"""Records that are asked of the client at once, before their sizes are looked at."""

log = logging.getLogger(__name__)


class Polling:
    """name: of the source. passing: notes errors behind which the client goes on. For the member's thread."""

    def __init__(self, name: str, options: KafkaSourceOptions, state: MemberState, passing: PassingErrors) -> None:
        self._name = name
        self._passing = passing
        self._options = options
        self._state = state

    def poll(self, consumer: Consumer, timeout: float) -> None:
        """Hold what has come, a batch at most. Raises SourceError."""
        if (first := consumer.poll(timeout)) is None:
            return
        # Records come out of compressed batches, of which the client's own limits count the compressed bytes.
        room = int(_PART_OF_BATCH * self._options.batch_bytes)
        most = min(self._options.batch_size, room // self._state.size_of_record)
        messages, size, step = [first], len(first), _FIRST_STEP
        # They may be much larger than those that came last.
        while len(messages) < most and size < room:
            more = consumer.consume(min(step, most - len(messages)), 0)
            messages += more
            if len(more) < step:
                break
            size += sum(map(len, more))
            step = min(2 * step, _MOST_STEP)
        self._hold(consumer, messages)

    def poll_paused(self, consumer: Consumer, timeout: float) -> None:
        """Hold what has come all the same, while partitions are paused. Raises SourceError."""
        if (message := consumer.poll(timeout)) is not None:
            self._hold(consumer, [message])

    def _hold(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        failed = [(at, error) for at, message in enumerate(messages) if (error := message.error()) is not None]
        broken = next((at for at, error in failed if error.code() in _OF_ONE_PLACE), len(messages))
        ends = [messages[at] for at, error in failed if at < broken and self._is_end(messages[at], error)]
        records = [message for message in messages[:broken] if message.error() is None] if failed else messages
        if good := self._read_headers(cast("Sequence[parsed.Message]", records)):
            self._state.hold(Taken.collect(good))
        for message in ends:  # behind the records in front of it
            self._state.note_empty(_to_partition(message), int(message.offset() or 0))
        if broken < len(messages):
            # What is in front of it is delivered first: brokers may not have it any more.
            self._state.fail_behind(self._explain_broken_place(consumer, messages[broken]))

    def _read_headers(self, messages: Iterable[parsed.Message]) -> list[parsed.Message]:
        """The records, without headers those whose headers cannot be read."""
        found, bare = replace_unreadable(messages)
        if bare:
            what = "source.%s: the headers of %d records are left out, because names of them are not UTF-8; first: %s"
            log.warning(what, self._name, len(bare), f"{bare[0].topic()}[{bare[0].partition()}]@{bare[0].offset()}")
            self._state.count_headerless(len(bare))
        return found

    def _is_end(self, message: Message, error: KafkaError) -> bool:
        """Whether it says that all of a partition in front of its offset has come. Raises SourceError."""
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in MISSING and (message.topic() or "").startswith(PATTERN_MARK):
            log.warning("source.%s: no topic matches %s yet", self._name, message.topic())
            return False
        if error.code() in MISSING and message.topic() not in self._options.topics:
            # The next session compares the ids of topics: this one would read on in a topic of the same name.
            raise SourceUnavailable(f"topic {message.topic()}, which a pattern matched, was deleted")
        if error.code() in _ENDS:
            where = f"topic {message.topic()}" if message.topic() else f"group {self._options.group_id}"
            raise make_source_error(where, error)
        self._passing.note(_to_partition(message) if message.topic() else None, error.str())
        return False

    def _explain_broken_place(self, consumer: Consumer, message: Message) -> SourceError:
        """What is wrong there: records that are gone, or that are not as they were written."""
        error, partition = cast("KafkaError", message.error()), _to_partition(message)
        if error.code() in UNREADABLE:
            return make_source_error(f"topic {message.topic()}", error)
        try:
            ends = consumer.get_watermark_offsets(TopicPartition(*partition), timeout=self._options.timeout)
            require_no_gap(partition, int(message.offset() or 0), ends, self._options.group_id)
        except PositionRefused as gap:
            return gap
        except KafkaException:
            pass  # then in the client's words
        return PositionRefused(f"{partition}: {error.str()}", describe_gap_remedy(self._options.group_id))


def _to_partition(message: Message) -> Partition:
    return Partition(str(message.topic()), int(message.partition() or 0))
