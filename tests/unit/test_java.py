from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.embedded import java
from psql_streamer.embedded.java import find_java, read_java_version
from psql_streamer.errors import StreamerError


def test_java_home_is_looked_at_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "home", "21.0.4")))
    monkeypatch.setenv("PATH", str(fake_jdk(tmp_path / "path", "17.0.1") / "bin"))
    assert find_java() == tmp_path / "home" / "bin" / "java"


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "home", "11.0.2")))
    monkeypatch.setenv("PATH", str(fake_jdk(tmp_path / "path", "17.0.1") / "bin"))
    assert find_java() == tmp_path / "path" / "bin" / "java"


def test_the_old_numbering_is_understood(tmp_path: Path) -> None:
    assert read_java_version(fake_jdk(tmp_path, "1.8.0_392") / "bin" / "java") == 8


def test_without_a_usable_java_the_error_says_what_was_seen_and_how_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path, "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(java, "_USUAL_PLACES", ())
    with pytest.raises(StreamerError, match=r"is Java 11.*install one: apt-get install openjdk-17-jre-headless"):
        find_java()


def test_a_java_without_memory_for_its_machine_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "Error occurred during initialization of VM\\nCould not allocate compressed class space"
    home = fake_jdk(tmp_path, "17")
    (home / "bin" / "java").write_text(f"#!/bin/sh\nprintf '{lines}\\n'; exit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(StreamerError, match=r"java does not start: Could not allocate.*: raise the limit of memory"):
        find_java()


def fake_jdk(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder
