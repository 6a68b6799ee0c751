"""psql-streamer: PostgreSQL's write-ahead log as typed, enriched events in Kafka."""

__version__ = "0.1.0"
