"""This process: when it began, and whom it writes to."""

import os
import time
from pathlib import Path
from typing import IO

_IMPORTED = time.time()


def started() -> float:
    """The `time.time()` at which this process began, imports included; where the system does not say, when this module was loaded."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return _IMPORTED
    return time.time() - age


def let_go(stream: IO[str]) -> None:
    """Write nowhere from now on, in place of a reader that has gone (`... | head`); what is left in the buffer would fail at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
