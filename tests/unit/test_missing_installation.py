"""A checkout whose Python does not have the package knows no sources, and says what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from psql_streamer import entry_points, plugins
from psql_streamer.errors import ConfigError


@pytest.fixture
def without_metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(entry_points, "entry_points", lambda **_: ())
    entry_points._read_entry_points.cache_clear()
    yield
    entry_points._read_entry_points.cache_clear()


@pytest.mark.usefixtures("without_metadata")
def test_without_an_installation_the_command_that_installs_is_named() -> None:
    with pytest.raises(ConfigError, match=r'^"postgres" cannot be found, as no source can: .* run `pip install \.`'):
        plugins.load_source_class("postgres")
