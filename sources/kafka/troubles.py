"""What the client tells of trouble with the brokers, beside its records."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException

from sinks.kafka.connection_errors import explain_silence
from sources.kafka.errors import REFUSED, make_source_error
from sources.kafka.member_state import MemberState

_BROKER_ANSWER_SECONDS = 1.0
"""The time that brokers get to answer when it is asked whether the trouble has passed."""

_HOW_LONG = " (after "
"""What follows in the client's errors differs from attempt to attempt."""

log = logging.getLogger(__name__)


class Troubles:
    """An error is logged once until it has passed. name: of the source. group: of the member. hosts: of the
    configuration. For the member's thread, and for the one that starts it.
    """

    def __init__(self, name: str, group: str, hosts: Sequence[str], state: MemberState) -> None:
        self._hosts = hosts
        self._name = name
        self._group = group
        self._state = state
        self._logged: set[str] = set()
        self._cause: KafkaError | None = None
        self._is_asked = False  # since the last error

    @property
    def cause(self) -> KafkaError | None:
        """The first error since the brokers last answered. Later ones say less: that no broker is left."""
        return self._cause

    def note(self, error: KafkaError) -> None:
        """The client's error_cb: some errors pass, others end the member."""
        error = explain_silence(error, self._hosts)
        if error.code() in REFUSED:
            self._state.fail(make_source_error(f"group {self._group}", error))
        self._cause, self._is_asked = self._cause or error, False
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._state.problem:
            self._state.set_problem(error.str())
        what, _, _ = error.str().partition(_HOW_LONG)
        if what not in self._logged:
            self._logged.add(what)
            log.warning("source.%s: %s", self._name, error.str())

    def note_asked(self) -> None:
        """Brokers are asked now for what the member reads."""
        self._is_asked = True

    def note_answer(self) -> None:
        """All of them have answered what they were asked last: trouble from before they were asked has passed."""
        if self._state.problem and self._is_asked:
            self._note_passed()
        self._is_asked = False

    def look_whether_passed(self, consumer: Consumer) -> None:
        """Ask any broker, if something was wrong with them, for a member that reads nothing."""
        if not self._state.problem:
            return
        try:
            consumer.list_topics(timeout=_BROKER_ANSWER_SECONDS)
        except KafkaException:
            return
        self._note_passed()

    def _note_passed(self) -> None:
        self._state.set_problem("")
        self._cause = None
        self._logged.clear()
        log.info("source.%s: the brokers answer again", self._name)
