"""What the service hands to executors that are not its own: modules of rules, [spark] pyFiles and jars.

A local engine needs none of it but pyFiles: its Python processes have the service's path.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psql_streamer.errors import HandlerRefused
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.named_files import make_absolute, say_absent
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.rule_modules import Module, find_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("psql_streamer.spark")

_ARCHIVES = (".zip", ".egg")
_MOST_SHIPPED_BYTES = 256 << 20
"""Of an archive that is made here: a folder that is larger was hardly meant."""

_LEFT_OUT = frozenset({"__pycache__", ".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def check_files(options: SparkOptions) -> Iterator[Finding]:
    """What of pyFiles and jars is not there, or is nothing that Python can import; packages that nobody resolves."""
    if options.remote is not None and options.packages:
        problem = "[spark] packages: a Spark Connect server resolves packages when it starts"
        yield Finding(Severity.ERROR, problem, "start it with --packages, or name files in jars, which are sent to it")
    for name in options.py_files:
        path = Path(name)
        if absent := say_absent(path):
            yield Finding(Severity.ERROR, f"[spark] pyFiles: {absent}", "correct the path")
        elif not path.is_dir() and path.suffix not in (".py", *_ARCHIVES):
            problem = f"[spark] pyFiles: {name} is neither a .py file, a .zip file nor a folder"
            yield Finding(Severity.ERROR, problem, "name one of these; what has to be compiled is installed there")
    for name in options.jars:
        if absent := say_absent(Path(name)):
            yield Finding(Severity.ERROR, f"[spark] jars: {absent}", "correct the path")
        elif not Path(name).is_file():
            yield Finding(Severity.ERROR, f"[spark] jars: {name} is no file", "correct the path")


def put_on_path(options: SparkOptions) -> None:
    """Make what is in pyFiles importable in this process too, behind everything else."""
    for name in options.py_files:
        path = make_absolute(Path(name))
        entry = str(path.parent if path.suffix == ".py" or _is_package(path) else path)
        if entry not in sys.path:
            sys.path.append(entry)


@dataclass(frozen=True, slots=True)
class Shipment:
    """Files that executors import modules from. told: what they hold, in words; empty if there is nothing."""

    files: tuple[Path, ...]
    jars: tuple[Path, ...]
    told: str

    def to_context(self, spark: SparkSession) -> None:
        """Hand it to all executors of an application. Jars are among the settings with which it was started."""
        path = sys.path[:]
        for file in self.files:
            spark.sparkContext.addPyFile(str(file))
        # It puts them before Python's library in this process too.
        sys.path[:] = path

    def to_server(self, session: SparkSession) -> None:
        """Hand it to the executors and the server of a Spark Connect session."""
        remote: Any = session
        if self.files:
            remote.addArtifacts(*map(str, self.files), pyfile=True)
        if self.jars:
            remote.addArtifacts(*map(str, self.jars))


def pack(options: SparkOptions, folder: Path) -> Shipment:
    """Everything that is to be shipped, with the archives that this needs made in the folder.

    HandlerRefused: something is too large, or not there.
    """
    for finding in check_files(options):
        raise HandlerRefused(finding.problem, finding.remedy)
    local = options.remote is None and options.master.startswith("local")
    modules = () if local else find_modules(options.function_modules)
    given = tuple(_as_file(Path(name), folder) for name in options.py_files)
    own = tuple(_pack_modules(modules, folder))
    return Shipment((*own, *given), tuple(map(Path, options.jars)), _describe_contents(modules, options))


def _describe_contents(modules: Iterable[Module], options: SparkOptions) -> str:
    of_rules = ", ".join(module.name for module in modules)
    given = ", ".join(options.py_files)
    parts = [f"modules of rules: {of_rules}" if of_rules else "", f"pyFiles: {given}" if given else ""]
    return "; ".join(filter(None, parts))


def _pack_modules(modules: Iterable[Module], folder: Path) -> Iterator[Path]:
    """Archives as they are, all others in one."""
    places = {place: module.name for module in modules for place in module.places}
    yield from (place for place in places if place.is_file() and place.suffix != ".py")
    rest = [(place.parent, place) for place in places if place.is_dir() or place.suffix == ".py"]
    if rest:
        yield _zip(rest, folder, "rules")


def _as_file(given: Path, folder: Path) -> Path:
    """A file as it is; a folder as an archive, of the package that it is or of the modules that lie in it."""
    path = make_absolute(given)
    if not path.is_dir():
        return path
    return _zip([(path.parent if _is_package(path) else path, path)], folder, path.name)


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()


def _zip(places: Iterable[tuple[Path, Path]], folder: Path, name: str) -> Path:
    """places: (what names in the archive are relative to, file or folder). Its name says what is in it, because a
    Spark Connect session refuses another file under a name that it knows."""
    made = folder / f"{name}.zip"
    digest = hashlib.sha256()
    size = 0
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for root, place in places:
            for path in _list_paths_within(root, place):
                content = path.read_bytes() if path.is_file() else b""
                # zipimport sees a folder without an __init__.py only by an entry of its own.
                shown = f"{path.relative_to(root).as_posix()}{'/' if path.is_dir() else ''}"
                size += len(content)
                if size > _MOST_SHIPPED_BYTES:
                    raise HandlerRefused(
                        f"{place} has more than {_MOST_SHIPPED_BYTES >> 20} MB to ship to executors",
                        "keep modules of rules in a folder of their own, or install them on the executors",
                    )
                digest.update(f"{shown}\0{len(content)}\0".encode() + content)
                archive.writestr(zipfile.ZipInfo(shown, _ZIP_EPOCH), content, zipfile.ZIP_DEFLATED)
    return made.rename(folder / f"{name}-{digest.hexdigest()[:12]}.zip")


def _list_paths_within(root: Path, place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for path in sorted((place, *place.rglob("*"))):
        kept = _LEFT_OUT.isdisjoint(path.relative_to(place).parts) and (path.is_dir() or path.is_file())
        if kept and path != root:
            yield path
