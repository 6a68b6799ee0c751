"""The command line."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psql_streamer import __version__, logs, starting_signals
from psql_streamer.commands import capture_arguments, snapshot_arguments, trial_arguments
from psql_streamer.config import Config, LogFormat, LogOptions, load
from psql_streamer.errors import ConfigError, StoreError, StreamerError
from psql_streamer.interfaces import Severity
from psql_streamer.named_files import make_absolute
from psql_streamer.redaction import redact
from psql_streamer.shortage import explain_shortage
from psql_streamer.shown_commands import remembering_file, show_command
from psql_streamer.standard_output import telling_of_standard_output

if TYPE_CHECKING:
    from psql_streamer.checkpoint.store_format import StoredPosition

OK = 0
FAILED = 1
BAD_CONFIGURATION = 2
FOUND_ERRORS = 3
INTERRUPTED = 130

_EPILOG = """\
exit codes:
  0  success, or the service stopped on request
  1  the service failed, or refused what was asked; a snapshot that was waited for did not end well; nothing was
     captured; a rule that is tried stops the service
  2  the configuration or the command line cannot be used
  3  check or validate found errors

Without -config the environment is the configuration: PG_HOST, PG_DATABASE and KAFKA_BROKERS, and as needed PG_PORT,
PG_USERNAME, PG_PASSWORD, PG_PUBLICATION, PG_SLOT, KAFKA_TOPIC_PREFIX. PSQL_STREAMER__SOURCE__DB1__DSN and the like
override single keys, with or without a file.
"""
DEMO_SOURCES = ("postgres", "kafka", "mysql", "sql")
"""As the demo has them, which is not imported for this."""

_TRANSLATED = "JSON of a connector (GET /connectors/NAME), or Debezium Server's application.properties; - for stdin"

_LAST_MESSAGE_SECONDS = 0.5
"""The time that a last message may take."""

_LIBRARIES = ("pyarrow", "pyspark", "confluent-kafka", "psycopg2-binary", "lmdb")

_log = logging.getLogger("psql_streamer.cli")
_service_log = logging.getLogger("psql_streamer.pipeline")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    arguments = _build_parser().parse_args(argv)
    with remembering_file(getattr(arguments, "config", None)):
        return _run_command(arguments)


def _run_command(arguments: argparse.Namespace) -> int:
    verbosity = getattr(arguments, "verbose", 0) - getattr(arguments, "quiet", 0)
    logs.configure(_log_options(LogOptions(), arguments), verbosity)
    command = arguments.command or "run"
    try:
        if command == "run":
            starting_signals.stop_by_signals(_tell_of_stop)
        else:
            starting_signals.release_signals()
        with telling_of_standard_output():
            return int(_COMMANDS[command](arguments, verbosity))
    except ConfigError as error:
        _complain([redact(problem) for problem in error.problems])
        return BAD_CONFIGURATION
    except StreamerError as error:
        _log.debug("where it came from", exc_info=True)
        _complain([redact(str(error))])
        return FAILED
    except BrokenPipeError:  # nobody reads the output any more (`| head`)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        shortage = explain_shortage(error)
        if shortage is None:
            raise
        _log.debug("where it came from", exc_info=True)
        _complain([str(shortage)])
        return FAILED


def _tell_of_stop(signal: str) -> None:
    """From a handler of a signal: what was interrupted may be writing the log, or wait for whoever reads that."""
    logs.wait_no_longer()
    saying = threading.Thread(target=_service_log.info, args=("stopping: %s", signal), name="last words", daemon=True)
    saying.start()
    saying.join(_LAST_MESSAGE_SECONDS)


def _run(arguments: argparse.Namespace, verbosity: int) -> int:
    config = _load(arguments)
    debug = [f"source.{name}" for name, source in config.sources.items() if source.options.debug]
    debug += [f"sink.{name}" for name, sink in config.sinks.items() if sink.options.debug]
    logs.configure(_log_options(config.log, arguments), verbosity, debug)
    for warning in config.warnings:
        logging.getLogger("psql_streamer.config").warning(warning)
    # Not at the top: it loads Arrow and the HTTP server, which the other commands have no use for.
    from psql_streamer.pipeline import pipeline

    return pipeline.run(config)


def _validate(arguments: argparse.Namespace, verbosity: int) -> int:
    try:
        config = _load(arguments)
    except ConfigError as error:
        return _print_findings(arguments, [_make_finding("", Severity.ERROR, problem) for problem in error.problems])
    found = [_make_finding("", Severity.WARNING, warning) for warning in config.warnings]
    if verbosity > 0 and not found and not arguments.json:
        sys.stdout.write("configuration: ok\n")
    return _print_findings(arguments, found)


def _check(arguments: argparse.Namespace, verbosity: int) -> int:
    from psql_streamer import preflight

    try:
        config = _load(arguments)
    except ConfigError as error:
        return _print_findings(arguments, [_make_finding("", Severity.ERROR, problem) for problem in error.problems])
    logs.configure(_log_options(config.log, arguments), verbosity)
    found = [_make_finding("", Severity.WARNING, warning) for warning in config.warnings]
    for report in preflight.check(config):
        found += [_make_finding(report.part, each.severity, each.problem, each.remedy) for each in report.findings]
        if verbosity > 0 and not arguments.json:
            outcome = "ok" if not report.findings else f"{len(report.findings)} found"
            sys.stdout.write(f"{report.part}: {outcome} ({report.seconds:.2f} s)\n")
            sys.stdout.flush()
    return _print_findings(arguments, found)


def _show_or_forget_position(arguments: argparse.Namespace, _verbosity: int) -> int:
    from psql_streamer.checkpoint.store import Store
    from psql_streamer.checkpoint.store_place import require_place

    config = _load(arguments)
    name = arguments.forget
    require_place(config.lmdb)
    store = Store(config.lmdb, config.lmdb_map_size)
    # Opening would make the file, for the user of this command, and the service may run as another one.
    exists = config.lmdb.exists()
    if exists:
        store.open()
    try:
        if name is None:
            _print_positions(config, store.read_all() if exists else {})
        elif not (exists and store.forget(name)):  # which also forgets a source that has another name now, or is gone
            config.require_source(name)
            raise StoreError(f"{config.lmdb} holds no position of source {name}", "there is nothing to forget")
    finally:
        store.close()
    return OK


def _print_positions(config: Config, stored: Mapping[str, StoredPosition]) -> None:
    """A line for each. What else is to be known goes to stderr."""
    for source, record in stored.items():
        sys.stdout.write(f"{source} {record.position}\n")
    if not stored:
        what = "holds no position" if config.lmdb.exists() else "does not exist"
        logs.complain(f"lmdb: {make_absolute(config.lmdb)} {what}: the service has stored none there yet")
    for source in stored:
        if source not in config.sources:
            logs.complain(
                f'{config.name}: there is no source "{source}" any more, whose position is stored: if it is not '
                f"needed, {show_command('position', 'forget', source)}"
            )


def _run_snapshot(arguments: argparse.Namespace, _verbosity: int) -> int:
    from psql_streamer.commands import snapshot

    return OK if snapshot.run(arguments, _load(arguments)) else FAILED


def _capture(arguments: argparse.Namespace, verbosity: int) -> int:
    from psql_streamer.commands import capture

    config = _load(arguments)
    logs.configure(_log_options(config.log, arguments), verbosity)
    return OK if capture.run(arguments, config) else FAILED


def _try(arguments: argparse.Namespace, verbosity: int) -> int:
    from psql_streamer.commands import trial

    config = _load(arguments)
    logs.configure(_log_options(config.log, arguments), verbosity)
    return OK if trial.run(arguments, config) else FAILED


def _translate(arguments: argparse.Namespace, _verbosity: int) -> int:
    from psql_streamer.commands import translate

    translate.run(arguments)
    return OK


def _run_demo(arguments: argparse.Namespace, _verbosity: int) -> int:
    from psql_streamer import demo

    return demo.main(arguments.duration, arguments.source)


def _print_versions(_arguments: argparse.Namespace, _verbosity: int) -> int:
    sys.stdout.write(f"psql-streamer {__version__}\nPython {platform.python_version()}\n")
    for library in _LIBRARIES:
        try:
            sys.stdout.write(f"{library} {version(library)}\n")
        except PackageNotFoundError:
            continue  # psycopg2 may be installed under another distribution's name
    return OK


_COMMANDS = {
    "run": _run,
    "check": _check,
    "validate": _validate,
    "position": _show_or_forget_position,
    "snapshot": _run_snapshot,
    "capture": _capture,
    "try": _try,
    "translate": _translate,
    "demo": _run_demo,
    "version": _print_versions,
}


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="psql-streamer",
        description="Change data capture from PostgreSQL, MySQL, SQL and Kafka: typed, enriched events in Kafka. "
        "Without a command: run.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"psql-streamer {__version__}")
    _add_common(parser)
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, text in {
        "run": "stream until SIGTERM or SIGINT (the default)",
        "check": "check every precondition: servers, privileges, topics, Java; prints nothing if all is well",
        "validate": "check the configuration alone",
        "position": "show the stored positions, or forget one; the service must not be running",
        "snapshot": "ask the running service for snapshots of tables, see, pause and cancel them",
        "capture": "print changes of a table as lines of JSON, without moving a position",
        "try": "print what the rules make of captured changes, without sending anything",
        "translate": "print the configuration file for what a Debezium connector's configuration says",
        "demo": "set up a database, Kafka and Spark on this machine and stream between them",
        "version": "print the versions of psql-streamer and its libraries",
    }.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name in ("run", "check", "validate", "position", "capture", "try"):
            _add_common(command)
        if name in ("check", "validate"):
            command.add_argument("--json", action="store_true", help="print the findings as one JSON object")
        if name == "position":
            _add_forget(command)
        if name == "snapshot":
            snapshot_arguments.add_arguments(command, _add_common)
        if name == "capture":
            capture_arguments.add_arguments(command)
        if name == "try":
            trial_arguments.add_arguments(command)
        if name == "translate":
            command.add_argument("file", metavar="FILE", help=_TRANSLATED)
        if name == "demo":
            command.add_argument("--duration", type=_positive, default=30.0, metavar="SECONDS", help="default: 30")
            command.add_argument("--source", choices=DEMO_SOURCES, default="postgres", help="default: postgres")
    return parser


def _add_forget(position: argparse.ArgumentParser) -> None:
    text = "forget the position of a source, whose next start is then as its first one"
    forget = position.add_subparsers(metavar="forget").add_parser(
        "forget", help=text, description=text, allow_abbrev=False
    )
    position.set_defaults(forget=None)
    forget.add_argument("forget", metavar="SOURCE", help="its name in the configuration")
    _add_common(forget)


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Options that may stand before the command as well as after it: absent ones must not hide the other place's."""
    options: dict[str, Any] = {"default": argparse.SUPPRESS}
    parser.add_argument("-config", "--config", "-c", type=Path, metavar="FILE", help="the TOML file", **options)
    parser.add_argument("-v", "--verbose", action="count", help="more messages; repeatable", **options)
    parser.add_argument("-q", "--quiet", action="count", help="fewer messages; repeatable", **options)
    formats = [form.value for form in LogFormat]
    parser.add_argument("--log-format", choices=formats, help="the log format; overrides [log]", **options)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _load(arguments: argparse.Namespace) -> Config:
    return load(getattr(arguments, "config", None), os.environ)


def _log_options(options: LogOptions, arguments: argparse.Namespace) -> LogOptions:
    chosen = getattr(arguments, "log_format", None)
    return options.model_copy(update={"format": LogFormat(chosen)}) if chosen else options


def _make_finding(part: str, severity: Severity, problem: str, remedy: str = "") -> dict[str, str]:
    return {"part": part, "severity": severity.value, "problem": redact(problem), "remedy": redact(remedy)}


def _print_findings(arguments: argparse.Namespace, found: list[dict[str, str]]) -> int:
    errors = any(finding["severity"] == Severity.ERROR.value for finding in found)
    if arguments.json:
        json.dump({"ok": not errors, "findings": found}, sys.stdout, ensure_ascii=False, indent=2)
        sys.stdout.write("\n")
    else:
        for finding in found:
            where = [finding["part"]] if finding["part"] else []
            remedy = [finding["remedy"]] if finding["remedy"] else []
            line = ": ".join([*where, finding["severity"], finding["problem"], *remedy])
            sys.stdout.write(f"{logs.escape_controls(line)}\n")
    return FOUND_ERRORS if errors else OK


def _complain(problems: list[str]) -> None:
    for problem in problems:
        logs.complain(problem)
