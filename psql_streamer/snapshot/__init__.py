"""Snapshots beside the stream: which rows of a chunk the stream has newer ones of."""
