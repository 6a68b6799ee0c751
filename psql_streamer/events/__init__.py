"""Batches as events: the JSON of values and rows, the formats, keys, and records ready for a sink. Pure."""
