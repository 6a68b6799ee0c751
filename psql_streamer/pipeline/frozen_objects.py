"""What the garbage collector does not look at."""

from __future__ import annotations

import gc


def freeze_objects() -> None:
    """Take what is there, which stays for as long as the process runs, out of the garbage collector's sight.

    Modules, classes and configuration are some 75,000 objects. A whole collection goes through them in 45 ms, in which
    no thread runs; while records of a topic are read, one is made for every 50,000. Behind this it takes 3 ms.
    """
    gc.collect()
    gc.freeze()
