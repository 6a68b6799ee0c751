"""The `kafka` source: topics that other instances write, as micro-batches."""
