"""A configuration, and a file that one of its values names, may be a pipe or a device: reading it ends all the same."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from psql_streamer.config import load
from psql_streamer.config.small_files import read_small_file
from psql_streamer.errors import ConfigError
from psql_streamer.named_files import find_unreadable


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_device_without_an_end_is_refused_as_a_configuration() -> None:
    with pytest.raises(
        ConfigError, match=r"^/dev/zero: cannot be read: it has more than 16,777,216 bytes: name the file"
    ):
        load(Path("/dev/zero"), {})


def test_a_device_without_an_end_is_refused_as_a_value(tmp_path: Path) -> None:
    config = tmp_path / "shop.toml"
    config.write_text('lmdb = "${file:/dev/zero}"')
    with pytest.raises(ConfigError, match=re.escape("${file:/dev/zero} cannot be read: it has more than 1,048,576")):
        load(config, {})


def test_a_pipe_is_read_when_its_writer_comes(pipe: Path) -> None:
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 100_000,))
    writer.start()
    assert read_small_file(pipe, 1 << 20) == b"x" * 100_000
    writer.join()


def test_a_pipe_to_which_nobody_writes_is_not_waited_for_without_end(pipe: Path) -> None:
    with pytest.raises(OSError, match=r"nobody has written to it for 0.05 s"):
        read_small_file(pipe, 1 << 20, wait=0.05)


def test_a_pipe_is_no_file_of_a_client(pipe: Path) -> None:
    assert list(find_unreadable({"sslrootcert": str(pipe)})) == [
        "sslrootcert names a pipe, which can be read once only: name a file"
    ]
