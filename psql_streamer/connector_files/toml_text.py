"""Sections as TOML. What JSON writes of strings, numbers, lists and booleans is TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any


def render_file(settings: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]], notes: Iterable[str]) -> str:
    """A configuration file. settings: in front of all sections. notes: comments at its beginning."""
    lines = [f"# {note}" for note in notes]
    if lines:
        lines.append("")
    lines += [_render_setting(key, value) for key, value in settings.items()]
    for name, keys in sections.items():
        lines += ["", f"[{name}]", *(_render_setting(key, value) for key, value in keys.items())]
    return "\n".join([*lines, ""])


def _render_setting(key: str, value: Any) -> str:
    return f"{_render_key(key)} = {_render_value(value)}"


def _render_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_render_setting(key, item) for key, item in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_render_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _render_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
