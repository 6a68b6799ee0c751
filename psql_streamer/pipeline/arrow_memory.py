"""Which allocator Arrow's arrays live in."""

from __future__ import annotations

import os

import pyarrow as pa


def return_freed_pages() -> None:
    """Take Arrow's memory from jemalloc, where pyarrow has it and ARROW_DEFAULT_MEMORY_POOL names no other.

    Micro-batches come and go by the megabyte: the default, mimalloc, holds on to a quarter more resident memory.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ or "jemalloc" not in pa.supported_memory_backends():
        return
    pa.set_memory_pool(pa.jemalloc_memory_pool())
