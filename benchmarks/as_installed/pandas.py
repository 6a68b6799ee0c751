"""In front of pandas on the service's path. It is installed for tests, and not with the service; pyarrow imports it as
soon as it is there, which takes 48 MB."""

raise ImportError("benchmarks measure the service as it is installed: without pandas")
