"""Spark for a user id without an account, with which platforms start containers.

Java then has "?" for the home of the user, which Ivy refuses, and Hadoop's login asks the system for the user's name,
and fails. Spark gets a home and a name of ours.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any


def has_account() -> bool:
    """Whether the system knows the user id of this process."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def list_home_options(folder: Path) -> list[str]:
    """Java's options. folder: the home where HOME names none that can be written, as it does not in a container."""
    if has_account():
        return []
    home = Path(os.environ.get("HOME", ""))
    return [f"-Duser.home={home if home.is_absolute() and os.access(home, os.W_OK) else folder}"]


def log_in(gateway: Any) -> None:
    """Before anything of Hadoop's is used: by the name in HADOOP_USER_NAME or SPARK_USER, else by the number."""
    if has_account():
        return
    name = os.environ.get("HADOOP_USER_NAME") or os.environ.get("SPARK_USER") or str(os.geteuid())
    users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(name))
