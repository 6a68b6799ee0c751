"""A group's coordinator that does not answer in time, and is there again later."""

from __future__ import annotations

import subprocess
import sys
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sources.kafka.coordinator import ask_coordinator
from tests.mock_brokers import MockBrokers


def test_a_late_answer_does_not_end_the_process() -> None:
    """The client aborts it when its own timeout has passed."""
    asks = f"import {__name__} as test; test.ask_while_it_is_away()"
    result = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "no answer from the group's coordinator within 0.5 s\nwell\n"), (
        result.stderr
    )


def ask_while_it_is_away() -> None:
    """Runs in a process of its own."""
    with MockBrokers() as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        admin.list_topics(timeout=10)
        brokers.take_down(1)
        try:
            ask_coordinator(admin, lambda timeout: admin.describe_consumer_groups(["g"], request_timeout=timeout), 0.5)
        except KafkaException as error:
            print(error.args[0].str(), flush=True)
        time.sleep(1)
        brokers.bring_up(1)
        time.sleep(2)
    print("well", flush=True)
