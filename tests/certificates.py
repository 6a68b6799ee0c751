"""Certificates for servers and clients of tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


class Certificate:
    """Signed by itself, for the name 127.0.0.1 alone. certificate, key: PEM files, which any account may read."""

    def __init__(self, folder: Path, name: str) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("no openssl on PATH to make a certificate with")
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        command = [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self.key, "-out", self.certificate),
        ]
        subprocess.run(command, check=True, capture_output=True)
        self.key.chmod(0o644)
