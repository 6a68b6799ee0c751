"""Values in a connection string that libpq would refuse when it connects.

https://www.postgresql.org/docs/current/libpq-connect.html has what each parameter may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslcertmode": ("disable", "allow", "require"),
    "sslnegotiation": ("postgres", "direct"),
    "gssencmode": ("disable", "prefer", "require"),
    "channel_binding": ("disable", "prefer", "require"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "load_balance_hosts": ("disable", "random"),
}
_NUMBERS = ("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
_NUMBER = re.compile(r"\s*[-+]?\d{1,10}\s*", re.ASCII)
_LARGEST_PORT = 65535


def find_unusable_values(given: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the parameters of a connection string. Nothing of a value is shown, which may be a part of a
    password: in an URI where a / in it is not encoded, libpq takes what is before that for host and port.
    """
    for name, choices in _CHOICES.items():
        if name in given and given[name] not in choices:
            yield f"{name} must be one of {', '.join(choices)}"
    for name in _NUMBERS:
        if name in given and not _NUMBER.fullmatch(given[name]):
            yield f"{name} must be a whole number"
    ports = given.get("port", "").split(",")
    if not all(not port.strip() or _is_port(port) for port in ports):
        yield "port must be a number from 1 to 65535 (in an URI write a password's / as %2F and its @ as %40)"
    hosts = max(given.get(name, "").count(",") + 1 for name in ("host", "hostaddr"))
    if len(ports) not in (1, hosts) and given.keys() & {"host", "hostaddr"}:
        yield f"port must be one for all hosts, or one for each: there are {hosts} hosts, and {len(ports)} ports"


def _is_port(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and 1 <= int(text) <= _LARGEST_PORT
