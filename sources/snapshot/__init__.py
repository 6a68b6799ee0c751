"""Snapshots beside a stream, whatever server it is of: what is read next, what may be given, and what is said of it."""
