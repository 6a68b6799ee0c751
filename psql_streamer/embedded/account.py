"""As whom an embedded server runs that refuses to run as root."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from psql_streamer.errors import StreamerError

Account: TypeAlias = pwd.struct_passwd | None
"""None: the caller's own."""


def choose_account(program: str, names: Sequence[str]) -> Account:
    """The caller's own account; where the caller is root, the first of these that there is.

    program: as in messages. The first name is the one to create where there is none of them.
    """
    if os.geteuid() != 0:
        return None
    for name in names:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StreamerError(
        f"{program} does not run as root, and there is no account {' or '.join(names)}",
        f"create one (useradd --system {names[0]}), or run as another user",
    )


def give(path: Path, account: Account) -> None:
    """Let a file or folder belong to the account."""
    if account is not None:
        os.chown(path, account.pw_uid, account.pw_gid)


def make_account_options(account: Account) -> dict[str, Any]:
    """The arguments of Popen that make a process run as the account, without groups of the caller's."""
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account is not None else {}
