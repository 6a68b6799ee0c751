#!/bin/sh
# Runs psql-streamer with the mounted configuration file when there is one; without it, the environment is the
# configuration. Arguments are psql-streamer's own: `run`, `check`, `version`, `-config FILE`, ...
set -eu

config=/etc/psql-streamer/psql-streamer.toml

if [ -f "$config" ]; then
  set -- -config "$config" "$@"
fi

# exec: psql-streamer becomes process 1, and gets the signals itself.
exec psql-streamer "$@"
