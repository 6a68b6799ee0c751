"""Commands of the command line that have more to them than a call."""
