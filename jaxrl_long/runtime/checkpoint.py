"""Checkpoints: device state and host record commit as one folder, or not at all, and damage is noticed before it is used.

    <folder>/00000012-2147484672/      update, and env steps as a Python integer
        arrays/                        every leaf of the state, by Orbax
        checkpoint.json                layout number, table of leaves, host record
        SHA256SUMS                     of all other files; `sha256sum -c SHA256SUMS` checks it by hand

Of Orbax's APIs this uses the plain `Checkpointer`, from a thread of its own, instead of `CheckpointManager` or `v1`: the
commit must also cover the host record and the checksums, so the folder that is renamed into place is ours either way, and
this part of Orbax is the same in all releases (`v1` still moves: in 0.12 it is `experimental.v1`). Nothing is pickled.
"""

import json
import math
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_long.fields import RunError
from jaxrl_long.runtime.checksums import find_damage, seal, sync
from jaxrl_long.typing import PyTree

LAYOUT = 1
RECORD, ARRAYS = "checkpoint.json", "arrays"
WRITING, DELETING = ".writing-", ".deleting-"
SHOWN = 8


class CheckpointError(RunError):
    """A checkpoint could not be written, read, or does not fit the state it should fill."""


@dataclass(frozen=True, order=True)
class Name:
    """Folder name of a checkpoint; the newest sorts last."""

    update: int
    revision: int
    """Counts saves of one update: a later save never overwrites an earlier one, which would not be atomic."""
    env_steps: int

    def __str__(self) -> str:
        """Write the name as it stands on the disk."""
        revision = f".{self.revision}" if self.revision else ""
        return f"{self.update:08d}-{self.env_steps}{revision}"

    @classmethod
    def parse(cls, text: str) -> "Name | None":
        """Read a folder name; None where it is no checkpoint's."""
        match = re.fullmatch(r"(\d{8,})-(\d+)(?:\.(\d+))?", text)
        return cls(int(match[1]), int(match[3] or 0), int(match[2])) if match else None


class Checkpoints:
    """The checkpoints of one run, written by one process; others may read them meanwhile.

    `keep` latest intact ones are kept, the one with the best `score`, and those `held`. Damaged ones are left where they are and never counted.
    `say` is told about each checkpoint that is skipped, and why.
    """

    def __init__(self, folder: Path | str, keep: int = 2, say: Callable[[str], None] | None = None) -> None:
        """Look at `folder`, which need not exist yet; nothing is written before the first save."""
        self.folder = Path(folder).absolute()
        self.keep = max(1, keep)
        self._say = say or (lambda text: print(text, file=sys.stderr))
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._intact: set[Name] = set()
        self.held: set[int] = set()
        """Updates whose checkpoints stay for now: somebody is going to read them."""
        self._swept = False

    def save(self, update: int, env_steps: int, state: PyTree, host: dict[str, Any], *, score: float | None = None, block: bool = False) -> None:
        """Copy `state` (a pytree of jax arrays, typed keys included) to host memory, then write it in the background.

        When this returns, `state` may be donated. `host` must be JSON. An earlier save still in flight is waited for.
        `score`: higher is better. Raises CheckpointError if an earlier save has failed, or with `block` if this one does.
        """
        self.wait()
        arrays, table = _to_host(state)
        record = {"layout": LAYOUT, "update": update, "env_steps": env_steps, "score": score, "leaves": table, "host": host}
        text = json.dumps(record, indent=1)
        self._thread = threading.Thread(target=self._write, args=(update, env_steps, arrays, text), name="checkpoint", daemon=True)
        self._thread.start()
        if block:
            self.wait()

    def wait(self) -> None:
        """Return when nothing is being written. Raises CheckpointError if the save waited for, or the one before, has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def raise_failure(self) -> None:
        """Raise CheckpointError if a save has failed; does not wait for one that is being written."""
        if not self.busy:
            self.wait()

    @property
    def busy(self) -> bool:
        """Whether a save is being written now, so that another would have to wait."""
        return self._thread is not None and self._thread.is_alive()

    def all(self) -> list[int]:
        """List the updates that have a committed checkpoint, oldest first, without checking them."""
        return sorted({name.update for name in self._names()})

    def latest(self) -> int | None:
        """Find the newest intact checkpoint's update, None if there is none; tell `say` which were skipped and why."""
        for name in reversed(self._names()):
            damage = self._check(name)
            if damage is None:
                return name.update
            self._say(f"checkpoint {self.folder / str(name)} is skipped: {damage}.")
        return None

    def best(self) -> int | None:
        """Find the update of the intact checkpoint with the highest score; None if none has a score."""
        found = self._best(self._newest(self._all_intact()))
        return found.update if found else None

    def record(self, update: int) -> dict[str, Any]:
        """Read update, env_steps, score and host record of a checkpoint, without its arrays. Raises CheckpointError."""
        return _read_record(self.folder / str(self._find(update)))

    def restore(self, update: int, like: PyTree, *, partial: bool = False, beside: str | None = None) -> tuple[PyTree, dict[str, Any]]:
        """Fill the structure of `like` (jax.ShapeDtypeStruct leaves; their shardings say where) and return it with the host record.

        The number of devices may differ from the one it was saved with. Every leaf has buffers of its own and may be donated.
        `partial`: leaves that `like` lacks are not read; `beside`: only those of them whose names begin with it may be there.
        Raises CheckpointError if it is damaged, or naming each leaf that does not fit.
        """
        path = self.folder / str(self._find(update))
        record = _read_record(path)
        leaves, structure = jax.tree_util.tree_flatten_with_path(like)
        wanted = {jax.tree_util.keystr(where): leaf for where, leaf in leaves}
        saved = {name: entry for name, entry in record["leaves"].items() if name in wanted or not beside or not name.startswith(beside)}
        _compare(path, saved, wanted, partial=partial)
        arrays = _read_arrays(path / ARRAYS, [name for name in wanted if _stored(record["leaves"][name])])
        placed = [_place(arrays.get(name), record["leaves"][name], leaf) for name, leaf in wanted.items()]
        return jax.tree_util.tree_unflatten(structure, placed), record["host"]

    def _names(self) -> list[Name]:
        """Every committed checkpoint, oldest first."""
        entries = os.listdir(self.folder) if self.folder.is_dir() else []
        return sorted(name for name in map(Name.parse, entries) if name)

    def _check(self, name: Name) -> str | None:
        """Say what is wrong with a checkpoint, and remember it if nothing is."""
        damage = find_damage(self.folder / str(name), RECORD)
        if damage is None:
            self._intact.add(name)
        else:
            self._intact.discard(name)
        return damage

    def _find(self, update: int) -> Name:
        """Newest intact checkpoint of one update."""
        names = [name for name in reversed(self._names()) if name.update == update]
        damages = []
        for name in names:
            damage = None if name in self._intact else self._check(name)
            if damage is None:
                return name
            damages.append(f"{name}: {damage}")
        raise CheckpointError(f"{self.folder} has no intact checkpoint of update {update}. {'; '.join(damages) or f'It has {self.all()}'}.")

    def _write(self, update: int, env_steps: int, arrays: dict[str, np.ndarray], record: str) -> None:
        """Write and commit one checkpoint; runs in the background and keeps its error for the next `wait`."""
        revision = max((name.revision + 1 for name in self._names() if name.update == update), default=0)
        name = Name(update, revision, env_steps)
        temporary = self.folder / f"{WRITING}{name}"
        try:
            self._sweep()
            temporary.mkdir(parents=True)
            _write_arrays(temporary / ARRAYS, arrays)
            (temporary / RECORD).write_text(record)
            seal(temporary)
            temporary.rename(self.folder / str(name))
            sync(self.folder)
            self._intact.add(name)
            self._prune()
        # Whatever it was (full disk, Orbax, permissions), it has to reach the training loop instead of dying with this thread.
        except Exception as error:
            shutil.rmtree(temporary, ignore_errors=True)
            self._error = CheckpointError(f"saving the checkpoint of update {update} in {self.folder} failed: {error}. Earlier checkpoints are untouched.")
            self._error.__cause__ = error

    def _sweep(self) -> None:
        """Remove what killed processes left half written. Only a writer may: the run folder's lock makes it the only one."""
        if not self._swept and self.folder.is_dir():
            for entry in os.listdir(self.folder):
                if entry.startswith((WRITING, DELETING)):
                    shutil.rmtree(self.folder / entry, ignore_errors=True)
        self._swept = True

    def _prune(self) -> None:
        """Delete intact checkpoints beyond the `keep` latest and the best; a damaged one never takes an intact one's place."""
        # Read again rather than trusted: what was intact when it was written may have been damaged since.
        intact = self._all_intact()
        newest = self._newest(intact)
        kept = {*newest[: self.keep], self._best(newest), *(name for name in newest if name.update in self.held)}
        for name in set(intact) - kept:
            # A rename first, so that a kill in the middle of the deletion leaves no checkpoint that looks damaged.
            doomed = (self.folder / str(name)).rename(self.folder / f"{DELETING}{name}")
            shutil.rmtree(doomed, ignore_errors=True)
            self._intact.discard(name)

    def _all_intact(self) -> list[Name]:
        """The names of all undamaged checkpoints, newest first."""
        return [name for name in reversed(self._names()) if self._check(name) is None]

    @staticmethod
    def _newest(names: list[Name]) -> list[Name]:
        """Of each update the first of `names`."""
        first: dict[int, Name] = {}
        for name in names:
            first.setdefault(name.update, name)
        return list(first.values())

    def _best(self, names: list[Name]) -> Name | None:
        """The one with the highest score, the newest of equals; None where none has any."""
        scores = {name: _read_record(self.folder / str(name))["score"] for name in names}
        rated = [name for name, score in scores.items() if score is not None and not math.isnan(score)]
        return max(rated, key=lambda name: (scores[name], name), default=None)


def _to_host(state: PyTree) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
    """Copy every leaf to host memory: arrays by path, and the table that says what they were."""
    leaves = {jax.tree_util.keystr(where): leaf for where, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}
    table = {name: _describe(leaf) for name, leaf in leaves.items()}
    raw = {name: jax.random.key_data(leaf) if "key" in table[name] else leaf for name, leaf in leaves.items()}
    for leaf in raw.values():
        leaf.copy_to_host_async()
    return {name: _own(np.asarray(leaf)) for name, leaf in raw.items() if leaf.size}, table


def _own(array: np.ndarray) -> np.ndarray:
    """Copy an array that only looks into a device's memory (as on the CPU), which the next dispatch may overwrite."""
    return array if array.flags.owndata else array.copy()


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _describe(leaf: Any) -> dict[str, Any]:
    """Shape and dtype of a jax array, and the generator's name if it holds typed keys."""
    entry = {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
    return entry | {"key": str(jax.random.key_impl(leaf))} if _is_key(leaf) else entry


def _stored(entry: dict[str, Any]) -> bool:
    """Whether a leaf has any element: Orbax refuses arrays of none, so they live in the table only."""
    return 0 not in entry["shape"]


def _text(entry: dict[str, Any] | None) -> str:
    return "absent" if entry is None else f"{entry['dtype']}{entry['shape']}"


def _compare(path: Path, saved: dict[str, Any], wanted: dict[str, Any], *, partial: bool) -> None:
    """Raise CheckpointError naming every leaf that differs in presence, shape or dtype."""
    expected = {name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)} for name, leaf in wanted.items()}
    names = expected if partial else dict.fromkeys([*saved, *expected])
    differing = [name for name in names if _text(saved.get(name)) != _text(expected.get(name))]
    if differing:
        lines = [f"  {name}: saved {_text(saved.get(name))}, expected {_text(expected.get(name))}" for name in differing[:SHOWN]]
        more = [f"  and {len(differing) - SHOWN} more"] if len(differing) > SHOWN else []
        raise CheckpointError("\n".join([f"{path} does not fit this state.", *lines, *more]))


def _place(array: np.ndarray | None, entry: dict[str, Any], like: Any) -> jax.Array:
    """Put one leaf where `like` wants it."""
    sharding = getattr(like, "sharding", None)
    if "key" in entry:
        data = array if array is not None else np.zeros((*entry["shape"], *jax.random.key_data(jax.random.key(0, impl=entry["key"])).shape), np.uint32)
        return jax.device_put(jax.random.wrap_key_data(jax.numpy.asarray(data), impl=entry["key"]), sharding)
    # An array that aliases NumPy's memory must not be donated: always a copy.
    return jax.device_put(array if array is not None else np.zeros(entry["shape"], like.dtype), sharding, may_alias=False)


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    # Importing Orbax takes seconds: it happens in the background, at the first save.
    import orbax.checkpoint as ocp

    if arrays:
        ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).save(path, args=ocp.args.PyTreeSave(arrays))


def _read_arrays(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    """Read some of the leaves as NumPy arrays. Raises CheckpointError."""
    import orbax.checkpoint as ocp

    if not names:
        return {}
    as_numpy = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
    args = ocp.args.PyTreeRestore(item=dict.fromkeys(names, 0), restore_args=as_numpy, partial_restore=True)
    try:
        return ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(path, args=args)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} can't be read: {error}") from error


def _read_record(path: Path) -> dict[str, Any]:
    """Read `checkpoint.json`. Raises CheckpointError if it is unreadable or of another layout."""
    try:
        record = json.loads((path / RECORD).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / RECORD} can't be read: {error}") from error
    if record.get("layout") != LAYOUT:
        raise CheckpointError(f"{path} has layout {record.get('layout')}, this version reads layout {LAYOUT}. Continue it with the version that wrote it.")
    return record
