"""Facts about this process."""

import os
import time
from pathlib import Path

_IMPORTED = time.time()


def started() -> float:
    """The `time.time()` at which this process began, imports included; where the system does not say, when this module was loaded."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return _IMPORTED
    return time.time() - age
