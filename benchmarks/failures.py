"""What a benchmark ends with when there is no figure."""


class BenchmarkFailed(Exception):
    """The message says what did not happen; the next benchmark is still worth running."""
