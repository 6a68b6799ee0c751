"""Starts every process of the service, and sees to it that modules are those that are installed.

Python looks for a module in the folder of the program, or the working folder, then in those of PYTHONPATH, and then
in its own library and in site-packages. Anybody's folder may hold a `json.py` or a `sources.py`, which would run in
place of ours. So these folders go behind all others before anything is imported; what they alone hold is still found.
This module may import nothing but what the interpreter's start has imported: a folder may hold any other.
"""

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""What holds this package."""

_OURS = ("psql_streamer", "sources", "sinks")

_OLDEST_PYTHON = 0x030B0000


def main() -> int:
    """The console script, and `python -m psql_streamer`."""
    if sys.hexversion < _OLDEST_PYTHON:  # version_info is what a linter for the newest one takes for always true
        return _complain(f"{sys.executable} is Python {sys.version.split()[0]}", "use Python 3.11 or later")
    _prepare()
    from psql_streamer import starting_signals  # only now: it imports what a folder of the user may hold

    starting_signals.hold_signals()
    try:
        return _run("psql_streamer.cli", sys.argv[1:])
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", *_OURS):
            raise
        remedy = f"run `{sys.executable} -m pip install {_ROOT}`, or use the Python that has it"
        return _complain(f"{sys.executable} lacks the library {library}", remedy)
    except Exception as error:  # of the imports: the command explains its own
        from psql_streamer.shortage import explain_shortage

        shortage = explain_shortage(error)
        if shortage is None:
            raise
        return _complain(shortage.what, shortage.remedy)


def _complain(problem: str, remedy: str) -> int:
    """As the service does, without what it is made of; its exit code."""
    sys.stderr.write(f"psql-streamer: {problem}: {remedy}\n")
    return 1


def make_command(module: str, *arguments: str) -> list[str]:
    """What runs `module.main(arguments)` in a process of its own, by this interpreter."""
    return [sys.executable, "-P", os.path.abspath(__file__), module, *arguments]


def put_path_in_order() -> None:
    """The program's folder and those of PYTHONPATH behind all others."""
    _look_there_last(_read_pythonpath() - list_library_folders())


def list_library_folders() -> set[str]:
    """The standard library, and every site-packages."""
    library = os.path.dirname(os.path.abspath(os.__file__))
    site = sys.modules.get("site")
    packages = [*site.getsitepackages(), site.getusersitepackages()] if site else []
    return {library, os.path.join(library, "lib-dynload"), *map(os.path.abspath, packages)}


def _prepare() -> None:
    """Before anything is imported. Once: the path's first entry counts as the program's folder."""
    _open_closed_streams()
    put_path_in_order()
    # OpenBLAS, which NumPy loads, starts a thread for each core, and where it gets none it sends SIGINT, by which the
    # service would stop as if somebody had asked for that. Nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _run(module: str, arguments: list[str]) -> int:
    return int(__import__(module, fromlist=["main"]).main(arguments))


def _open_closed_streams() -> None:
    """Stdin, stdout and stderr to nowhere where they were closed (`>&-`): the next file or socket would get the number,
    and what a library prints would go into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
            os.set_inheritable(opened, True)
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(opened, mode, errors="backslashreplace", closefd=False))


def _look_there_last(theirs: set[str]) -> None:
    """The program's folder, which Python puts first, and `theirs`; that which holds this package before the others."""
    programs = [] if sys.flags.safe_path else sys.path[:1]
    rest = sys.path[len(programs) :]
    ahead = [entry for entry in rest if entry not in theirs]
    behind = [entry for entry in (*programs, *rest) if entry not in ahead]
    sys.path[:] = dict.fromkeys((*ahead, _ROOT, *behind))


def _read_pythonpath() -> set[str]:
    """As the module `site` writes them."""
    if sys.flags.ignore_environment:
        return set()
    return {_make_absolute(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)}


def _make_absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry)
    except FileNotFoundError:  # the working folder was removed, and nothing can be imported from it
        return entry


if __name__ == "__main__":
    _prepare()
    sys.exit(_run(sys.argv[1], sys.argv[2:]))
