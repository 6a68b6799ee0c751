"""The sources that ship with psql-streamer, a folder each; found through entry points."""
