"""What a benchmark ends with when there is no figure."""

import psutil
import psycopg2
from confluent_kafka import KafkaException

from psql_streamer.errors import StreamerError


class BenchmarkFailed(Exception):
    """The message says what did not happen; the next benchmark is still worth running."""


FAILURES = (BenchmarkFailed, StreamerError, KafkaException, psycopg2.Error, psutil.Error)
"""Also those of a server that a benchmark asks for something."""
