"""As whom an embedded MariaDB or MySQL runs."""

from __future__ import annotations

import os
import pwd

from psql_streamer.errors import StreamerError

_UNPRIVILEGED_ACCOUNTS = ("mysql", "nobody")


def server_account() -> pwd.struct_passwd | None:
    """The account a server runs as: None for the caller's own, another one where the caller is root."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED_ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StreamerError(
        f"the server does not run as root, and there is no account {' or '.join(_UNPRIVILEGED_ACCOUNTS)}",
        "create one (useradd --system mysql), or run as another user",
    )
