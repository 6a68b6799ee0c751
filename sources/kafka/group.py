"""A member of a consumer group: it holds records until somebody takes them.

One thread speaks with the client. It polls, also while nobody takes anything, so that the group does not give the
member up (max.poll.interval.ms). `member_state.py` is what it shares with other threads, and says which offsets are
committed. `rebalancing.py` has the functions that the client calls from within a poll.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from psql_streamer.errors import SourceError, SourceUnavailable
from sources.kafka.beginnings import Beginnings
from sources.kafka.commits import Commits
from sources.kafka.committing import Committing
from sources.kafka.ends import AskedEnds
from sources.kafka.errors import make_source_error
from sources.kafka.foreign_members import ForeignMembers
from sources.kafka.leaving import leave
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Offsets
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.passing_errors import PassingErrors
from sources.kafka.pausing import Pausing
from sources.kafka.polling import Polling
from sources.kafka.rebalancing import Rebalancing
from sources.kafka.same_topics import SameTopics
from sources.kafka.standstill import Standstill
from sources.kafka.subscription import Subscription
from sources.kafka.takeover import Takeover
from sources.kafka.troubles import Troubles
from sources.kafka.watch import Watch

_POLL_SECONDS = 0.1
"""How long one poll waits; commits are due at least as often."""

_DELETED_SECONDS = 3.0
"""What brokers get to answer when a session ends: perhaps they are why."""

log = logging.getLogger(__name__)


class GroupMember:
    """name: of the source. reached: offsets where the source has got. left_in: the generation of the group that the
    session before was in; None for the first of this process. durable: offsets in front of which every sink has all.
    ids: of topics that were read, to which those of others are added. there: topics that existed when the source
    first looked. left: offsets in front of which records of the session before may be on their way. committing: who
    commits. state: what other threads take from it, and tell it.
    """

    def __init__(
        self,
        name: str,
        options: KafkaSourceOptions,
        reached: Offsets,
        left_in: int | None,
        durable: Offsets,
        ids: dict[str, str],
        there: Collection[str],
        committing: Committing,
        left: Offsets,
    ) -> None:
        self.state = state = MemberState(options, durable, committing.mark, left, ids)
        self._name = name
        self._options = options
        self._committing = committing
        self._most_held = 2 * options.batch_bytes
        admin = AdminClient(options.make_client_properties())
        topics = SameTopics(name, options, ids, admin)
        beginnings = Beginnings(name, options, reached, left_in, committing, there, admin, ids)
        passing = PassingErrors(name)
        self._polling = Polling(name, options, state, passing)
        self._pausing = Pausing()
        self._commits = Commits(name, committing, state, ids)
        self._troubles = Troubles(name, options.group_id, options.hosts, state)
        self._watch = Watch(
            name,
            state,
            topics,
            self._troubles,
            AskedEnds(admin, options.isolation_level),
            Standstill(options.group_id, passing.find_last),
            ForeignMembers(options, admin),
        )
        self._takeover = Takeover(name, options, admin)
        self._rebalancing = Rebalancing(
            name, options, state, beginnings, committing, self._commits, topics, self._pausing, self._takeover
        )
        self._subscription = Subscription(name, options, state, admin, self._subscribe)
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name=f"{name}.consumer", daemon=True)

    @property
    def generation(self) -> int | None:
        """The last of the group that it has seen; None: none."""
        return self._rebalancing.generation

    @property
    def is_started(self) -> bool:
        """Whether the brokers have answered, and it joins the group, or waits for topics."""
        return self._thread.ident is not None

    def start(self) -> None:
        """Ask the brokers for the topics, and join. SourceUnavailable when they do not answer. Topics that do not exist
        are waited for; SourceRefused for those that may not be described.
        """
        options = self._options
        callbacks = {"error_cb": self._troubles.note, "on_commit": self._commits.note_answer}
        self._consumer = Consumer({**options.make_consumer_properties(), **callbacks}, logger=log)
        try:
            found = self._consumer.list_topics(timeout=options.timeout).topics
        except KafkaException as error:
            self._consumer.poll(0)  # librdkafka gives the reason to a callback, and a timeout to whoever waits
            where = f"no answer from {','.join(options.hosts)}"
            raise self.state.error or make_source_error(where, self._troubles.cause or error.args[0]) from None
        self._subscription.begin(self._consumer, found)
        self._thread.start()

    def interrupt(self, error: SourceError) -> None:
        """Make whoever waits for it raise this, and wait for nothing any more. From any thread."""
        self.state.stop()
        self.state.fail(error)

    def close(self, seconds: float) -> None:
        """Commit what is confirmed, and leave the group; with an instanceId it keeps its partitions for a while."""
        self.state.stop()
        if self.is_started:
            self._thread.join(seconds)
        elif self._consumer is not None:
            self._consumer.close()

    def _subscribe(self, consumer: Consumer, topics: list[str]) -> None:
        rebalancing = self._rebalancing
        consumer.subscribe(topics, on_assign=rebalancing.assign, on_revoke=rebalancing.revoke, on_lost=rebalancing.lose)

    # In the thread of the client.

    def _run(self) -> None:
        assert self._consumer is not None  # noqa: S101 - start made it
        consumer, state = self._consumer, self.state
        try:
            while not state.has_ended:
                self._look_after(consumer)
                if self._wait_for_room(consumer):
                    self._polling.poll(consumer, _POLL_SECONDS)
        except (KafkaException, SourceError) as failed:
            group = f"group {self._options.group_id}"
            error = failed if isinstance(failed, SourceError) else make_source_error(group, failed.args[0])
            if self._committing.by_sink and isinstance(error, SourceUnavailable):
                self._deliver_before(error, consumer)
            state.fail(error)
        except Exception as error:  # a thread that ends without a word would be a silent source
            log.exception("source.%s: the consumer's thread ended", self._name)
            state.fail(SourceUnavailable(f"the consumer's thread ended: {type(error).__name__}"))
        finally:
            if self._committing.by_sink and isinstance(state.error, SourceUnavailable):
                state.wait_for_stop()  # what is on its way can be committed for as long as the client is a member
            self._watch.close()
            self._commits.finish(consumer)
            leave(consumer, bool(self._options.instance_id))

    def _deliver_before(self, error: SourceError, consumer: Consumer) -> None:
        """Poll, and read nothing more, until the sinks have what was taken: brokers take offsets in a transaction from
        the generation of the group that they are in, which the member hears of when it polls.
        """
        state, deadline = self.state, time.monotonic() + self._options.drain_timeout
        state.set_problem(str(error))
        self._rebalancing.let_go_of_deleted(state.partitions, _DELETED_SECONDS)
        with suppress(KafkaException), self._pausing.pause(consumer):
            while not (state.has_ended or state.is_drained) and time.monotonic() < deadline:
                with suppress(SourceError, KafkaException):  # the session ends anyway
                    self._polling.poll_paused(consumer, _POLL_SECONDS)

    def _look_after(self, consumer: Consumer) -> None:
        """Between two polls: commit what is due, and look at what is looked at now and then."""
        self._commits.send(consumer)
        self._takeover.look(consumer, self._subscription.ask)
        self._subscription.look(consumer)
        self._watch.look(consumer)

    def _wait_for_room(self, consumer: Consumer) -> bool:
        """Whether there is some. A member that waits long must poll all the same, with its partitions paused."""
        state = self.state
        if not state.wait_for_room(self._most_held, _POLL_SECONDS):
            self._watch.note_full()
            if not self._pausing.is_due(time.monotonic()):
                return False
            with self._pausing.pause(consumer):
                while not state.has_room(self._most_held):
                    self._watch.note_full()
                    self._look_after(consumer)
                    self._polling.poll_paused(consumer, _POLL_SECONDS)
        self._pausing.note_room()
        return not state.is_stopping
