"""The sources that ship with psql-streamer, one file each; found through entry points."""
