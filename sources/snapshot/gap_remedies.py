"""What an operator can do about changes that are lost to a source for good, as parts of messages."""

from __future__ import annotations

from psql_streamer.shown_commands import show_command


def accept_gap(source: str) -> str:
    """What to do about lost changes, as part of a message."""
    command = show_command("snapshot", "start", "--source", source, "--accept-gap")
    return f"stop the service and accept the gap ({command}): the next start sends all rows anew"


def send_anew(source: str) -> str:
    """What to do beside a stream that goes on behind lost changes, as part of a message."""
    return f"ask the running service for all rows ({show_command('snapshot', 'start', '--source', source)})"
