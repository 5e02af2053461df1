"""Two CPU devices for every test, before jax starts; programs compiled once are kept between runs of the tests."""

import os
from pathlib import Path

import jax
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Tests run on the CPU wherever they are: their numbers are exact there.
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
CACHE = Path(__file__).parent.parent / ".cache" / "tests"
jax.config.update("jax_compilation_cache_dir", str(CACHE / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subprocesses keep their compiled programs with the tests, not in the user's home."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
