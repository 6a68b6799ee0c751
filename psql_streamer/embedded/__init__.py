"""Real servers started from installed packages: for the demo, the tests and the benchmarks.

Nothing here is needed to run the service against servers of one's own.
"""
