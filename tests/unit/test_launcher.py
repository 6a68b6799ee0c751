"""Where modules are looked for in a process of the service: in a user's folders last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from psql_streamer import launcher

ROOT = str(Path(__file__).parents[2])
LIBRARY, PACKAGES = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")

SHOW = "import json, sys\n\ndef main(arguments):\n    print(json.dumps([sys.path, arguments]))\n    return 7\n"


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """A user's folder with a module that shows the path."""
    (tmp_path / "show.py").write_text(SHOW)
    return str(tmp_path)


def path_of(*options: str, pythonpath: str, cwd: str = "/", program: list[str] | None = None) -> list[str]:
    """sys.path as the module `show` sees it."""
    command = program or launcher.make_command("show", "a", "b")
    done = subprocess.run(
        [command[0], *options, *command[1:]],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": pythonpath},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (7, "")
    path, arguments = json.loads(done.stdout)
    assert arguments == ["a", "b"]
    assert len(path) == len(set(path))
    return list(path)


def test_folders_of_pythonpath_come_after_the_library_and_the_packages_in_their_order(shop: str) -> None:
    path = path_of(pythonpath=f"/one{os.pathsep}{shop}{os.pathsep}/two/../three")
    assert path[-3:] == ["/one", shop, "/three"]
    assert path.index(LIBRARY) < path.index(PACKAGES) < path.index("/one")


def test_an_empty_entry_of_pythonpath_is_the_working_folder(shop: str) -> None:
    assert path_of(pythonpath=f"/one{os.pathsep}", cwd=shop)[-2:] == ["/one", shop]


def test_a_library_that_is_named_in_pythonpath_stays_before_the_users_folders(shop: str) -> None:
    path = path_of(pythonpath=os.pathsep.join((shop, PACKAGES, LIBRARY)))
    assert path[-1] == shop
    assert {PACKAGES, LIBRARY} < set(path[:-1])


def test_a_package_that_pythonpath_alone_tells_of_comes_before_the_users_folders(shop: str, tmp_path: Path) -> None:
    """As after `pip install --target`."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "psql_streamer").symlink_to(Path(ROOT) / "psql_streamer", target_is_directory=True)
    program = [sys.executable, "-P", str(target / "psql_streamer" / "launcher.py"), "show", "a", "b"]
    path = path_of(pythonpath=os.pathsep.join((shop, str(target))), program=program)
    assert path[-2:] == [str(target), shop]


def test_the_folder_of_a_program_goes_last_too(shop: str) -> None:
    program = [sys.executable, str(Path(ROOT) / "psql_streamer" / "launcher.py"), "show", "a", "b"]
    path = path_of(pythonpath=shop, program=program)
    assert path[-2:] == [str(Path(ROOT) / "psql_streamer"), shop]


def test_a_process_that_ignores_the_environment_keeps_its_path(tmp_path: Path) -> None:
    program = (
        "import sys; from psql_streamer import launcher; before = [*sys.path]; "
        "launcher._look_there_last(launcher._read_pythonpath()); sys.exit(before != sys.path)"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run([sys.executable, "-I", "-c", program], env=environ).returncode == 0


def test_it_imports_nothing_that_a_users_folder_could_hold() -> None:
    program = (
        "import sys; before = set(sys.modules); import psql_streamer.launcher; "
        "print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["psql_streamer", "psql_streamer.launcher"]


def test_a_working_folder_that_was_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PYTHONPATH", "")
    gone.rmdir()
    assert launcher._read_pythonpath() == {""}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_leaves_its_number_to_no_file(tmp_path: Path, closed: str) -> None:
    """What a library prints, or a child, would go into that file."""
    show = "import os\n\ndef main(arguments):\n    os.write(2, b'said')\n    return open(arguments[0], 'wb').fileno()\n"
    (tmp_path / "show.py").write_text(show)
    command = launcher.make_command("show", str(tmp_path / "file"))
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert done.returncode > 2
    assert (tmp_path / "file").read_bytes() == b""
