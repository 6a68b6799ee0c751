"""`snapshot start --accept-gap`: a source begins anew, with a snapshot of all tables in place of what it missed."""

from __future__ import annotations

from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredSnapshot
from psql_streamer.config import Config
from psql_streamer.errors import ConfigError, StoreError, StoreInUse
from psql_streamer.pipeline.snapshot_requests import make_request, takes_snapshots


def accept_gap(config: Config, source: str | None) -> tuple[str, str, str]:
    """Forget the position of a source, and leave a request. The source, the snapshot's id, the position as text.

    The service must not be running. source: None where one alone takes snapshots.
    """
    name = _choose(config, source)
    store = Store(config.lmdb, config.lmdb_map_size)
    try:
        store.open()
    except StoreInUse as error:
        raise StoreError(error.what, "stop the service first") from None
    try:
        record = store.get(name)
        request = make_request()
        store.begin_again(name, StoredSnapshot(request))
    finally:
        store.close()
    return name, request.id, "none" if record is None else str(record.position)


def _choose(config: Config, source: str | None) -> str:
    able = [name for name, part in config.sources.items() if takes_snapshots(part.cls)]
    if source is None:
        if len(able) != 1:
            which = f"{', '.join(able)} do" if able else "none does"
            raise ConfigError([f"{config.name}: which source takes the snapshot: {which}; say it with --source"])
        return able[0]
    config.require_source(source)
    if source not in able:
        remedy = config.sources[source].cls.say_no_snapshots(source)
        raise ConfigError([f"{config.name}: source {source} takes no snapshots: {remedy}"])
    return source
