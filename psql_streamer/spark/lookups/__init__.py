"""Lookups of rules: tables from elsewhere, each a view of its name."""
