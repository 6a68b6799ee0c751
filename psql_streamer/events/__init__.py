"""Batches as events: the JSON of values and rows, the formats, keys, and records ready for a sink. Pure, but for
`formats` and `options`, which import the classes that a section names."""

from psql_streamer.events.encoder import HEADERS, Encoder

__all__ = ["HEADERS", "Encoder"]
