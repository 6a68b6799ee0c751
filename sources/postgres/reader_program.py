"""What the reader process runs: reader_sessions.py, without Python's `ssl`.

psycopg2 imports that module for the locks that OpenSSL needed from its users before version 1.1, and goes on without it
(psycopg2's psycopgmodule.c, libcrypto_threads_init). libpq encrypts connections itself. It takes 4 MB.
"""

from __future__ import annotations

import sys

sys.modules["ssl"] = None  # type: ignore[assignment]  # "import ssl" raises ModuleNotFoundError

from sources.postgres.reader_sessions import main  # noqa: E402 - it imports psycopg2

__all__ = ["main"]
