"""`python -m benchmarks.as_installed ...`: psql-streamer without what is installed here for tests alone.

pyarrow imports pandas as soon as it is there, which takes 48 MB, and pyspark gRPC and protobuf. The service depends on
none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from psql_streamer import launcher

_FOR_TESTS = ("pandas", "grpc", "google")


class _AsInstalled(PathFinder):
    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname in _FOR_TESTS else super().find_spec(fullname, path, target)


if __name__ == "__main__":
    sys.meta_path[:] = [_AsInstalled if finder is PathFinder else finder for finder in sys.meta_path]
    sys.exit(launcher.main())
