"""`psql-streamer demo`: a database -> Spark -> Kafka on this machine alone, checked row by row."""

from psql_streamer.demo.run import main

__all__ = ["main"]
