"""What embedded servers have in common: a process of their own, its log, and a start and an end with a context."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from psql_streamer.errors import StreamerError

_SERVER_START_SECONDS = 60.0
_ANSWER_PAUSE_SECONDS = 0.02


class EmbeddedServer(ABC):
    """name: as in messages. log_file: what the process prints.

    at_once: the signal that ends the process without any order. stop_seconds: how long it may take to end in order.
    """

    at_once: ClassVar[int] = signal.SIGKILL
    stop_seconds: ClassVar[float] = 60.0

    def __init__(self, name: str, log_file: Path) -> None:
        self.log_file = log_file
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> None:
        """Return when the server answers."""

    @abstractmethod
    def close(self) -> None:
        """Stop, and remove what is temporary."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether a client gets an answer."""

    @property
    def running(self) -> bool:
        """True while the server's process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The ID of its process. Raises ValueError when there is none."""
        if self._process is None:
            raise ValueError(f"{self._name} is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spawn(self, command: Sequence[str | Path], **options: Any) -> None:
        """Start the process. options: Popen's."""
        with self.log_file.open("ab") as log:
            # Ctrl-C in a terminal goes to the whole process group; the server is ours to stop, in its turn.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
            )

    def _await_answer(self) -> None:
        """Return when a client gets an answer. StreamerError, and the process ended, when none comes."""
        deadline = time.monotonic() + _SERVER_START_SECONDS
        while self.running and time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(_ANSWER_PAUSE_SECONDS)
        self._end(self.at_once)
        raise self._make_start_error()

    def _end(self, ask: int) -> None:
        """Send the process a signal, and `at_once` if it still lives `stop_seconds` later."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(ask)
        try:
            process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(self.at_once)
            process.wait(self.stop_seconds)

    def _make_start_error(self) -> StreamerError:
        tail = self.log_file.read_text(errors="replace").splitlines()[-5:]
        return StreamerError(
            f"embedded {self._name} did not start",
            "its log ends with: " + " | ".join(tail) if tail else f"its log {self.log_file} is empty",
        )


class KillableServer(EmbeddedServer):
    """A server that a SIGTERM ends in order and a SIGKILL at once, with a data folder.

    data_dir: kept; None: a temporary one, removed by `close`.
    """

    def __init__(self, name: str, data_dir: Path | None) -> None:
        # A unix socket's path may have about 100 bytes: a folder directly below the temporary one, not below data_dir.
        self._run_dir = Path(tempfile.mkdtemp(prefix=f"psql-streamer-{name.split()[0].lower()}"))
        self.data_dir = data_dir if data_dir is not None else self._run_dir / "data"
        super().__init__(name, self._run_dir / "server.log")

    def stop(self, *, kill: bool = False) -> None:
        """Shut down in order, or at once with SIGKILL."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM)

    def restart(self, *, kill: bool = False) -> None:
        """Stop and start, with the same port and data."""
        self.stop(kill=kill)
        self.start()

    def close(self) -> None:
        """Stop, and remove what is temporary."""
        self.stop(kill=self.data_dir.is_relative_to(self._run_dir))
        shutil.rmtree(self._run_dir, ignore_errors=True)
