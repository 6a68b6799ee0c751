"""Why a registry does not take a schema, and what is to be done about it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from psql_streamer.name_counts import escape_unprintable
from psql_streamer.registry.client import CONTENT_TYPE, RegistryClient
from psql_streamer.registry.errors import DeclinedError, RegistryError, RegistryRefused, SchemaError
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.registry.quoting import quote_words

_CONFLICT = 409
_NOT_PERMITTED = 42205
"""Of Confluent's registry, for subjects whose mode is another one than READWRITE."""

_READ_ONLY = re.compile("read.?only", re.IGNORECASE)

_LEVELS = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")


def make_refusal(
    client: RegistryClient, options: RegistryOptions, declined: DeclinedError, subject: str, content: Mapping[str, Any]
) -> RegistryRefused:
    """content: what was posted."""
    path = quote(subject, safe="")
    compared = _compare(client, path, content) if declined.status == _CONFLICT else {}
    words = quote_words(_join_differences(compared), options) or quote_words(declined.words, options)
    shown = escape_unprintable(subject)
    takes_not = f"the schema registry {declined.where} does not take the schema of the subject {shown}"
    if _is_of_mode(declined, compared):
        return RegistryRefused(
            f"the schema registry {declined.where} takes no new schema under the subject {shown} in its present mode "
            f"({_show_status(declined)}){words}",
            f'let it take schemas: in Confluent\'s, PUT {declined.where}/mode/{path} with {{"mode": "READWRITE"}}',
        )
    if declined.status == _CONFLICT:
        return RegistryRefused(
            f"{takes_not} ({_show_status(declined)}), which is incompatible with an earlier one"
            f"{_describe_level(client, path)}{words}",
            f"set a level that allows this change: {_show_level_command(declined.where, path)}",
        )
    return RegistryRefused(
        f"{takes_not} ({_show_status(declined)}){words}",
        "look at the rules that it has for the subject, and at the table",
    )


def _is_of_mode(declined: DeclinedError, compared: Mapping[str, Any]) -> bool:
    """Apicurio Registry has no code for it. A column that is incompatible may be named read_only."""
    if declined.status == _CONFLICT:
        return compared.get("is_compatible") is not False and _READ_ONLY.search(str(declined.words)) is not None
    return declined.code == _NOT_PERMITTED


def _show_status(declined: DeclinedError) -> str:
    has_code = type(declined.code) is int and declined.code != declined.status
    return f"{declined.status}, {declined.code}" if has_code else f"{declined.status}"


def _compare(client: RegistryClient, path: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the registry says of the difference to the latest schema of the subject; nothing if it does not say it."""
    try:
        return client.post(f"/compatibility/subjects/{path}/versions/latest?verbose=true", content)
    except (RegistryError, SchemaError, DeclinedError):
        return {}


def _join_differences(compared: Mapping[str, Any]) -> str:
    """Without the whole of the earlier schema."""
    messages = compared.get("messages")
    if not isinstance(messages, list):
        return ""
    return " ".join(one for one in messages if isinstance(one, str) and not one.startswith("{oldSchema:"))


def _describe_level(client: RegistryClient, path: str) -> str:
    try:
        level = client.get(f"/config/{path}?defaultToGlobal=true").get("compatibilityLevel")
    except (RegistryError, SchemaError):
        return ""
    return f" by the level {level}" if level in _LEVELS else ""


def _show_level_command(where: str, path: str) -> str:
    header = f"Content-Type: {CONTENT_TYPE}"
    return shlex.join(["curl", "-X", "PUT", "-H", header, "-d", '{"compatibility": "NONE"}', f"{where}/config/{path}"])
