"""The run's folder: where its files are, who may write them, and what produced them."""

import fcntl
import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import jaxrl_long
from jaxrl_long.fields import ConfigError, masked
from jaxrl_long.stored import PROVENANCE_FILE, SETTINGS_FILE

PACKAGES = ("jaxrl_long", "jax", "jaxlib", "brax", "flax", "optax", "numpy", "orbax-checkpoint", "mujoco", "wandb", "mlflow-skinny", "tensorboardX")
SECRET = re.compile(r"(key|token|secret|passw|credential)", re.IGNORECASE)


class RunFolder:
    """Names of everything a run writes; nothing is written outside `path`."""

    def __init__(self, path: Path | str) -> None:
        """Name the files of the run in `path`, which need not exist yet."""
        self.path = Path(path).expanduser().absolute()
        self.settings = self.path / SETTINGS_FILE
        self.metrics = self.path / "metrics.jsonl"
        self.provenance = self.path / PROVENANCE_FILE
        self.checkpoints = self.path / "checkpoints"
        self.stop = self.path / "STOP"
        self.evaluations = self.path / "evaluations"
        self.archive = self.path / "archive"
        self.endurance = self.path / "endurance.jsonl"
        self.trackers = self.path / "trackers.json"
        self.pictures = self.path / "pictures"
        self.lock = self.path / "lock"

    def tracker_ids(self) -> dict[str, str]:
        """Who the trackers of earlier processes know the run by, by tracker."""
        try:
            return json.loads(self.trackers.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def videos(self) -> list[Path]:
        """What was rendered of the run."""
        return sorted(path for suffix in ("gif", "mp4") for path in self.pictures.glob(f"**/*.{suffix}"))

    def create(self) -> "RunFolder":
        """Make the folder if it is not there. Raises ConfigError if it can't be made or written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError([f"run_dir={self.path} can't be created: {error.strerror}. Choose a folder that can be written."]) from error
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise ConfigError([f"run_dir={self.path} can't be written. Choose a folder that can."])
        return self


class Lock:
    """The right to write a run's folder, held by one living process at a time.

    The right is the kernel's file lock, which ends with its process however that dies; the file's text only tells others whose
    it is. On a file system shared between machines it protects as far as that carries `flock`. `stale`: a sentence about the dead
    process it was taken over from, or about a missing lock; otherwise None.
    """

    def __init__(self, path: Path, what: str | None = None) -> None:
        """Take the lock on `what` (by default the run_dir that `path` is in). Raises ConfigError naming host and process of a living owner."""
        self.stale: str | None = None
        # Opened without truncation: until the lock is ours, the text in it is somebody else's.
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _owner(self._file.read())
            self._file.close()
            remedy = "Wait for it, or stop it" if what else "Stop that one first, or choose another run_dir"
            raise ConfigError([f"{what or f'run_dir={path.parent}'} is in use by {owner}. {remedy}."]) from error
        except OSError as error:
            self.stale = f"{path.parent} can't be locked ({error.strerror}): nothing keeps a second process out."
        if (left := self._file.read()) and self.stale is None:
            self.stale = f"the lock of {_owner(left)} is taken over: that process is gone."
        self._write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "started": now()}))

    def release(self) -> None:
        """Give the lock back; the file stays, empty (removing it could take it from under the next owner)."""
        if not self._file.closed:
            self._write("")
            self._file.close()

    def __enter__(self) -> "Lock":
        """Hold it for a block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give it back at the block's end."""
        self.release()

    def _write(self, text: str) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock in this file."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _owner(text: str) -> str:
    """Say who wrote a lock file."""
    try:
        owner = json.loads(text)
        return f"process {owner['pid']} on {owner['host']} (since {owner['started']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def now() -> str:
    """Tell the time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_atomically(path: Path, text: str | bytes) -> None:
    """Replace a file by `text`: readers, and a crash at any moment, see the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Add one line to a file and force it onto the disk; a torn line before it is closed first."""
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
        torn = b"\n" if size and file.read(1) != b"\n" else b""
        file.write(torn + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def provenance(device: dict[str, Any]) -> dict[str, Any]:
    """Tell what this process is: versions, platform, source commit and command line. Never the environment's variables.

    `device` is what `devices.describe()` returns.
    """
    return {
        "started": now(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "command": [sys.executable, *map(_without_secret, sys.argv)],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": device,
        "source": source(Path(jaxrl_long.__file__).parent),
    }


def record(path: Path, entry: dict[str, Any]) -> None:
    """Append one JSON line: where a process of the run ran, or what an evaluation of it has found."""
    append_line(path, json.dumps(entry, default=str))


def source(package: Path) -> dict[str, Any] | None:
    """Tell the git commit of a package's own source and whether it was changed since; None outside such a checkout.

    A wheel installed into an environment that happens to lie inside somebody's repository is not that repository's commit.
    """
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(package, "rev-parse", "HEAD")
    changed = _git(package, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None else {"commit": commit, "dirty": bool(changed)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Ask git, without letting it write; None if it is missing, slow or says no."""
    try:
        result = subprocess.run(["git", "--no-optional-locks", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _version(name: str) -> str | None:
    if name == "jaxrl_long":
        return jaxrl_long.__version__
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _without_secret(argument: str) -> str:
    """Hide the value of a `name=value` argument whose name speaks of a secret, and passwords in addresses."""
    name, equals, _ = argument.partition("=")
    return f"{name}=***" if equals and SECRET.search(name) else masked(argument)
