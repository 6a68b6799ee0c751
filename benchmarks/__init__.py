"""Throughput against pg_recvlogical: `python -m benchmarks`."""
