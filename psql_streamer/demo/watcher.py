"""What arrives in Kafka: counted completely, shown as far as eyes can follow."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

_LINES_A_SECOND = 8
_LINES_OF_A_KIND = 2
"""Of one table and action a second, so that every kind is seen."""
_LINE_WIDTH = 150
"""Characters a line, where the output is no terminal that has a width of its own."""
_LEAST_WIDTH = 40
_FINISH_SECONDS = 30.0
_POLL_SECONDS = 0.1
_MOST_MESSAGES_AT_ONCE = 1000


class Watcher(threading.Thread):
    """Reads topics from their beginning, in the `event` format, until `finish` is called.

    dead_letters_in: the topic of dead letters, which is read as well. joined: table -> a column that its rule takes
    from a lookup, and that every row has. timed: whether a change's time is known to the millisecond.

    consumed: (table, action) -> events. dead: the same, of dead letters. repeated: how many came with a UUID that was
    there before; they are in neither. with_lookup, without_lookup: events of tables in `joined`, by table.
    latencies: seconds from a change's time to its consumption, if timed. error: what ended it early, if anything did.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: Iterable[str],
        enriched: Iterable[str],
        show: Callable[[str], None],
        dead_letters_in: str = "",
        joined: Mapping[str, str] | None = None,
        *,
        timed: bool = True,
    ) -> None:
        super().__init__(name="watcher", daemon=True)
        topics = [*topics, dead_letters_in] if dead_letters_in else list(topics)
        self.consumed: Counter[tuple[str, str]] = Counter()
        self.dead: Counter[tuple[str, str]] = Counter()
        self.with_lookup: Counter[str] = Counter()
        self.without_lookup: Counter[str] = Counter()
        self.repeated = 0
        self.latencies: list[float] = []
        self.error: str = ""
        self._dead_letters_in = dead_letters_in
        self._joined = joined or {}
        self._timed = timed
        self._seen: set[str] = set()
        self._finish_by: float | None = None
        self._printer = _Printer(show, frozenset(enriched))
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "psql-streamer-demo",  # the client wants one; partitions are assigned, nothing is committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        known = self._consumer.list_topics(timeout=20).topics
        self._partitions = {(topic, partition) for topic in topics for partition in known[topic].partitions}
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in sorted(self._partitions)])

    def run(self) -> None:
        try:
            while not self._is_finished():
                for message in self._poll_messages():
                    self._take(message)
                self._printer.pause()
        except (KafkaException, ValueError, KeyError) as error:
            self.error = f"the consumer stopped: {type(error).__name__}: {error}"
        finally:
            self._printer.count_hidden()
            self._consumer.close()

    def _poll_messages(self) -> list[Message]:
        """What is there. It waits for a first message alone: a wait for more would count as latency."""
        first = self._consumer.poll(_POLL_SECONDS)
        return [] if first is None else [first, *self._consumer.consume(_MOST_MESSAGES_AT_ONCE, 0)]

    def finish(self) -> None:
        """Read what is there now, to the end of every partition, and stop."""
        if self.ident is None:
            self._consumer.close()
            return
        self._finish_by = time.monotonic() + _FINISH_SECONDS
        self.join()

    def _is_finished(self) -> bool:
        if self._finish_by is None:
            return False
        if all(self._is_at_end(place) for place in self._partitions):
            return True
        if time.monotonic() > self._finish_by:
            self.error = f"the topics' ends were not reached in {_FINISH_SECONDS:.0f} s"
            return True
        return False

    def _is_at_end(self, place: tuple[str, int]) -> bool:
        """Whether everything up to the high watermark has been read."""
        partition = TopicPartition(*place)
        _, high = self._consumer.get_watermark_offsets(partition, timeout=10)
        [position] = self._consumer.position([partition])
        return bool(high == 0 or position.offset >= high)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.retriable():
                return
            raise KafkaException(error)
        value = message.value()
        if value is None:
            return
        # Numbers stay as they were written: a numeric(12,2) keeps its zeros.
        event = json.loads(value, parse_float=str)
        identity = str(event["UUID"])
        if identity in self._seen:
            self.repeated += 1
            return
        self._seen.add(identity)
        if message.topic() == self._dead_letters_in:
            self.dead[event["Table"], event["Action"]] += 1
            self._printer.print_dead_letter(event, _read_header(message, "dead_letter_reason"))
            return
        self.consumed[event["Table"], event["Action"]] += 1
        self._count_joined(event)
        latency = self._measure_latency(event)
        if latency is not None:
            self.latencies.append(latency)
        self._printer.print_event(event, latency)

    def _measure_latency(self, event: dict[str, Any]) -> float | None:
        """None of a row that was read by a snapshot: it may have waited for this consumer to begin."""
        if not self._timed or event["Action"] == "read":
            return None
        return (datetime.now(UTC) - datetime.fromisoformat(event["Timestamp"])).total_seconds()

    def _count_joined(self, event: dict[str, Any]) -> None:
        """An event of a delete has the key alone."""
        table = event["Table"]
        column = self._joined.get(table)
        if column is not None and event["Action"] != "delete":
            found = (event["Columns"] or {}).get(column) is not None
            (self.with_lookup if found else self.without_lookup)[table] += 1


class _Printer:
    """One line an event; above a readable rate, the rest is counted in one line."""

    def __init__(self, show: Callable[[str], None], enriched: frozenset[str]) -> None:
        self._show = show
        self._enriched = enriched
        self._second = 0
        self._shown = 0
        self._hidden = 0
        self._kinds: Counter[tuple[str, str]] = Counter()

    def print_event(self, event: dict[str, Any], latency: float | None) -> None:
        self.pause()
        kind = event["Table"], event["Action"]
        if self._shown >= _LINES_A_SECOND or self._kinds[kind] >= _LINES_OF_A_KIND:
            self._hidden += 1
            return
        self._shown += 1
        self._kinds[kind] += 1
        columns = event["Columns"] or event.get("Before") or {}
        stored = " ".join(
            f"{name}={_show_value(value)}" for name, value in columns.items() if name not in self._enriched
        )
        added = " ".join(
            f"{name}={_show_value(value)}"
            for name, value in columns.items()
            if name in self._enriched and value is not None
        )
        took = "" if latency is None else f"{latency * 1000:.0f} ms"
        line = f"{event['Table']:<11} {event['Action']:<6} {took:>8}  {stored}"
        if added:
            added = f" | + {added}"
        room = shutil.get_terminal_size((_LINE_WIDTH, 0)).columns - len(added)
        self._show((line if len(line) <= room else f"{line[: max(room, _LEAST_WIDTH) - 3]}...") + added)

    def print_dead_letter(self, event: dict[str, Any], reason: str) -> None:
        """Always shown: they are few."""
        self.pause()
        self._show(f"{event['Table']:<11} {event['Action']:<6} dead letter: {reason}")

    def pause(self) -> None:
        """When a new second has begun, say how many events of the last one had no line."""
        second = int(time.monotonic())
        if second == self._second:
            return
        self.count_hidden()
        self._second, self._shown = second, 0
        self._kinds.clear()

    def count_hidden(self) -> None:
        """Say how many events had no line since this was last said."""
        if self._hidden:
            self._show(f"{'':<11} ... and {self._hidden} more")
        self._hidden = 0


def _read_header(message: Message, name: str) -> str:
    value = dict(message.headers() or []).get(name)
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _show_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
