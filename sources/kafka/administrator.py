"""Questions about a cluster, and why it answers none."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]  # exported

from sources.kafka.errors import REFUSED
from sources.kafka.options import KafkaSourceOptions

log = logging.getLogger(__name__)


class Administrator:
    """A client for questions."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._timeout = options.timeout
        self._complaints: list[KafkaError] = []
        settings: dict[str, Any] = {**options.client_properties(), "error_cb": self._complaints.append}
        self.client = AdminClient(settings, logger=log)

    def list_topics(self) -> ClusterMetadata:
        """All that the cluster shows. Raises KafkaException: with why nobody is let in, if the brokers say that."""
        try:
            return self.client.list_topics(timeout=self._timeout)
        except KafkaException as error:
            self.client.poll(0)  # librdkafka gives the reason to a callback, and a timeout to whoever waits
            raise KafkaException(why([*self._complaints, error.args[0]])) from None


def why(said: list[KafkaError]) -> KafkaError:
    """The error that says the most: one that somebody has to mend before the last one."""
    return next((error for error in said if error.code() in REFUSED), said[-1])
