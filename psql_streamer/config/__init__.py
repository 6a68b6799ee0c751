"""TOML -> frozen models. Every problem of a file is found at once, each with its key path; secrets are never shown."""

from psql_streamer.config.loading import load
from psql_streamer.config.model import Config, HttpAddress, LogFormat, LogLevel, LogOptions, Part

__all__ = ["Config", "HttpAddress", "LogFormat", "LogLevel", "LogOptions", "Part", "load"]
