"""The sinks that ship with psql-streamer, a folder or a file each; found through entry points."""
