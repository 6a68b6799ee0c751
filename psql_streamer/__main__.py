"""`python -m psql_streamer`."""

import sys

from psql_streamer.launcher import main

if __name__ == "__main__":
    sys.exit(main())
