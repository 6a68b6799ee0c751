"""Bytes in, columnar batches out: the logical replication protocol (pgoutput, protocol version 1).

Pure: no socket, no clock, no disk. `frames` finds the messages in the byte stream, `decoder` turns them into
batches, `tuples` walks row data column by column, `types` knows PostgreSQL's types.
"""
