"""The Dockerfile's build stage, run line by line: the wheel holds what it should, and what it installs works.

`make soak` runs every line. Else the lines about the package itself are run, with the libraries of this environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from sysconfig import get_path
from typing import NamedTuple

import pytest

from psql_streamer import __version__
from tests.dockerfile import ROOT, copied, instructions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


class Image(NamedTuple):
    """What the build stage leaves. source: the build context, as far as it was copied."""

    source: Path
    wheel: Path
    command: Path


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.soak)], ids=["package", "whole"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    root = tmp_path_factory.mktemp("image")
    tools = root / "tools"
    venv.create(tools, with_pip=True)
    build = root / "build"
    build.mkdir()
    for source in copied(stage=0):
        copy(ROOT / source, build / source)
    for instruction in instructions():
        if instruction.stage == 0 and instruction.keyword == "RUN":
            line = instruction.argument.replace("/wheels", f"{root}/wheels").replace("/opt/", f"{root}/opt/")
            if not request.param and _LIBRARIES in line:
                line, _, _ = line.partition("&&")  # what builds the package is installed all the same
            subprocess.run(["sh", "-euc", line], cwd=build, env=environment(tools / "bin"), check=True)
    (wheel,) = (root / "wheels").glob("psql_streamer-*.whl")
    made = Image(build, wheel, root / "opt" / "psql-streamer" / "bin" / "psql-streamer")
    if not request.param:
        (packages,) = made.command.parent.parent.glob("lib/python*/site-packages")
        (packages / "libraries.pth").write_text(get_path("purelib"))
    yield made
    shutil.rmtree(root)  # it is more than a gigabyte, and pytest would keep three of them


_LIBRARIES = "pip wheel --no-build-isolation --wheel-dir"
"""In the line of the Dockerfile that gets them."""


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def environment(programs: Path) -> Mapping[str, str]:
    """This process's, with `programs` first on PATH and nothing that would let Python find this repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"PATH": f"{programs}:{kept['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1"}


def run(image: Image, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The installed command, in a folder from which this repository cannot be imported."""
    return subprocess.run(
        [image.command, *arguments],
        cwd=image.wheel.parent,
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(image: Image) -> None:
    with zipfile.ZipFile(image.wheel) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = {
        str(path.relative_to(image.source))
        for package in ("psql_streamer", "sources", "sinks")
        for path in (image.source / package).rglob("*")
        if path.is_file()
    }
    assert held == files


def test_the_wheel_carries_its_licence(image: Image) -> None:
    with zipfile.ZipFile(image.wheel) as wheel:
        assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())


def test_the_installed_command_says_its_version(image: Image) -> None:
    ran = run(image, "version")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"psql-streamer {__version__}\n")


def test_the_installed_command_explains_itself(image: Image) -> None:
    ran = run(image, "--help")
    assert ran.returncode == 0
    assert "-config" in ran.stdout


def test_every_installed_library_has_the_locked_version(image: Image, request: pytest.FixtureRequest) -> None:
    if "package" in request.node.name:
        pytest.skip("these are the libraries of this environment: make soak installs those of the image")
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "--python", image.command.parent / "python", "list", "--format", "freeze"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    locked = (ROOT / "requirements.lock").read_text().splitlines()
    assert set(listed) - set(locked) == {f"psql-streamer=={__version__}"}


def test_every_part_that_ships_is_found_where_only_the_wheel_is_installed(image: Image) -> None:
    ask = (
        "from importlib.metadata import entry_points\n"
        "for kind in ('sources', 'sinks', 'handlers'):\n"
        "    for part in entry_points(group=f'psql_streamer.{kind}'):\n"
        "        print(kind, part.name, part.load().__name__)\n"
    )
    ran = subprocess.run(
        [image.command.parent / "python", "-c", ask],
        cwd=image.wheel.parent,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert {tuple(line.split()[:2]) for line in ran.stdout.splitlines()} >= {
        ("sources", "postgres"),
        ("sinks", "kafka"),
        ("sinks", "stub_log"),
        ("sinks", "stub_discard"),
        ("handlers", "spark"),
    }


def test_the_status_page_is_there_where_only_the_wheel_is_installed(image: Image) -> None:
    ran = subprocess.run(
        [
            image.command.parent / "python",
            "-c",
            "from psql_streamer.api.page import render_status_page; print(render_status_page({}, {}, {}))",
        ],
        cwd=image.wheel.parent,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "<style>\n:root {" in ran.stdout


def test_a_configuration_from_the_environment_is_valid_in_the_image(image: Image) -> None:
    ran = run(
        image, "validate", PG_HOST="db", PG_DATABASE="shop", KAFKA_BROKERS="kafka:9092", PSQL_STREAMER__HTTP=":8080"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
