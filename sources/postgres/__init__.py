"""The `postgres` source. Nothing is imported here: the reader process loads no numpy."""
