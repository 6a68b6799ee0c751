"""The level of compatibility that a registry asks for under a subject."""

from __future__ import annotations

import json
import urllib.request

from tests.apicurio import ApicurioRegistry


def set_level(registry: ApicurioRegistry, subject: str, level: str) -> None:
    """BACKWARD, NONE and the like."""
    body, headers = json.dumps({"compatibility": level}).encode(), {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{registry.url}/config/{subject}", body, headers, method="PUT")
    with urllib.request.urlopen(asked, timeout=30) as response:
        assert response.status == 200
