"""What embedded servers have in common: a process of their own, its log, and a start and an end with a context."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from psql_streamer.errors import StreamerError


class EmbeddedServer(ABC):
    """name: as in messages. log_file: what the process prints."""

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

    def _end(self, ask: int, insist: int, seconds: float) -> None:
        """Send the process a signal, and another one if it still lives so many seconds later."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(ask)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(insist)
            process.wait(seconds)

    def _did_not_start(self) -> StreamerError:
        tail = self.log_file.read_text(errors="replace").splitlines()[-5:]
        return StreamerError(
            f"embedded {self._name} did not start",
            "its log ends with: " + " | ".join(tail) if tail else f"its log {self.log_file} is empty",
        )
