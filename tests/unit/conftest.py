"""Hypothesis on a machine that others keep busy: an example may take its time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_UNHURRIED = settings(deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("unhurried", _UNHURRIED, max_examples=30)
settings.register_profile("fuzz", _UNHURRIED, max_examples=1000)
settings.load_profile("unhurried")
