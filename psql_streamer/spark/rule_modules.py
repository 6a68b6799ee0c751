"""The modules that functions of rules are made of: their own, and those that these import.

Executors of a cluster have Python, pyspark and what is installed there, but not the folders of the service's
PYTHONPATH. What lies in these is found here by reading the imports of the source, nothing is run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from psql_streamer.launcher import list_library_folders

_ON_EVERY_EXECUTOR = frozenset({"pyspark", "py4j"})
_OUR_PACKAGES = frozenset({"psql_streamer", "sources", "sinks"})

_TYPES_AS_TEXT = ("str", "UnparsedDataType")
"""What user-defined functions, also those of a Spark Connect server, have of a type that was given as text."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module or package at the top level. places: its file, its folders, or the archive that it lies in."""

    name: str
    places: tuple[Path, ...]


def find_modules(names: Iterable[str]) -> tuple[Module, ...]:
    """The top-level modules of these dotted names, and those that they import, in the order of their names.

    Modules of Python's library are left out, and of what is imported everything that is installed (site-packages).
    """
    found: dict[str, Module] = {}
    waiting = [(_name_top_module(name), True) for name in names]
    while waiting:
        name, named = waiting.pop()
        module = None if name in found else _find_module(name)
        if module is None or not (named or _lies_outside(module)):
            continue
        found[name] = module
        waiting += ((imported, False) for imported in _collect_imports(module))
    return tuple(found[name] for name in sorted(found))


def forget_modules(names: Iterable[str]) -> None:
    """Have these modules, and those of the user's that they import, imported anew when they are asked for again.

    A user-defined function, or a column, that a module made when it was imported belongs to the JVM of that time.
    Packages with compiled modules stay: a process can load many of those (numpy's) only once.
    """
    compiled = {_name_top_module(name) for name, module in list(sys.modules.items()) if _is_compiled(module)}
    top = {module.name for module in find_modules(names)} - _OUR_PACKAGES - compiled
    for name in [name for name in sys.modules if _name_top_module(name) in top]:
        del sys.modules[name]


def send_by_value() -> None:
    """Have what imported modules of the user's hand to Python's processes of Spark sent whole, where it must be.

    By itself pyspark sends the name of a function, and the process imports its module. That fails where the module, or
    one that it imports, makes something of Spark when it is imported: there is no JVM in that process. Other modules
    stay, because what they hold (locks, connections) may be nothing that can be sent.
    """
    from pyspark.cloudpickle import register_pickle_by_value

    register: Callable[[ModuleType], None] = register_pickle_by_value
    waiting = {module.__name__: module for module in list(sys.modules.values()) if _is_of_the_user(module)}
    found = [module for module in waiting.values() if any(map(_needs_engine, _list_values(module)))]
    while found:
        names = {waiting.pop(module.__name__).__name__ for module in found}
        for module in found:
            register(module)
        found = [module for module in waiting.values() if not names.isdisjoint(map(_name_origin, _list_values(module)))]


def _is_of_the_user(module: ModuleType) -> bool:
    top, file = _name_top_module(module.__name__), getattr(module, "__file__", None)
    if top in _ON_EVERY_EXECUTOR | _OUR_PACKAGES or file is None or sys.modules.get(module.__name__) is not module:
        return False
    return _lies_outside(Module(top, (Path(file),)))


def _list_values(module: ModuleType) -> list[Any]:
    return list(vars(module).values())


def _name_origin(value: Any) -> str:
    """The module that a value is, or is of."""
    if isinstance(value, ModuleType):
        return value.__name__
    return value.__module__ if isinstance(value, FunctionType | type) else ""


def _needs_engine(value: Any) -> bool:
    """Whether it is a column, or a user-defined function whose type is a text, which the JVM reads."""
    from pyspark.sql import Column

    if not isinstance(value, FunctionType) or "evalType" not in vars(value):
        return isinstance(value, Column)
    kinds = [getattr(cell.cell_contents, "_returnType", None) for cell in value.__closure__ or ()]
    return any(type(kind).__name__ in _TYPES_AS_TEXT for kind in kinds)


def _is_compiled(module: ModuleType) -> bool:
    return isinstance(getattr(module, "__loader__", None), ExtensionFileLoader)


def _find_module(name: str) -> Module | None:
    """None where there is nothing to ship: it is built in, compiled, or not there."""
    if name in sys.stdlib_module_names or name in _ON_EVERY_EXECUTOR:
        return None
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    places = _list_places(spec) if spec is not None else ()
    return Module(name, places) if places else None


def _list_places(spec: ModuleSpec) -> tuple[Path, ...]:
    archive = getattr(spec.loader, "archive", None)
    if archive is not None:
        return (Path(archive),)
    if spec.submodule_search_locations is not None:
        return tuple(path for path in map(Path, spec.submodule_search_locations) if path.is_dir())
    return (Path(spec.origin),) if spec.origin is not None and spec.origin.endswith(".py") else ()


def _lies_outside(module: Module) -> bool:
    """Whether it is in none of the folders of Python's library and of installed packages."""
    return not any(place.is_relative_to(folder) for place in module.places for folder in list_library_folders())


def _collect_imports(module: Module) -> set[str]:
    """The top-level names that its source imports, wherever in the text."""
    return set(chain.from_iterable(map(_read_imports, _list_sources(module))))


def _list_sources(module: Module) -> Iterator[Path]:
    for place in module.places:
        if place.is_dir():
            yield from place.rglob("*.py")
        elif place.suffix == ".py":
            yield place


def _read_imports(source: Path) -> Iterator[str]:
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (_name_top_module(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield _name_top_module(node.module)


def _name_top_module(name: str) -> str:
    return name.partition(".")[0]
