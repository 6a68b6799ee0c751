"""Rows that the tables of a `postgres` source have already, read in chunks beside the stream."""
