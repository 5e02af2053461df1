"""An archive of steps on disk: its form, and how it is read back by environment, episode and step. `disk_writer.py` writes it.

A table of rows (steps in time) and columns (environments), an array per field, cut into blocks of BLOCK rows and COLUMNS columns
that are compressed, check-summed and replaced whole. `archive.json` says which rows are there; it is replaced last, so that a process
that dies at any moment leaves what it had committed. Arrays are Zarr, version 3: other programs can read them.
"""

import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore

from jaxrl_long.fields import RunError
from jaxrl_long.runtime.folder import write_atomically

MANIFEST = "archive.json"
BLOCK = 512
COLUMNS = 16
FORMAT = 1
HEADS = ("episode", "age", "finals")
"""Of each block and environment: episode and age at its first row, and how many final observations there are."""
TERMINATED, TRUNCATED = 1, 2
"""Bits of `end`, as in the ring."""
# Within a block time varies fastest, which numbers of one feature compress best in.
CODECS = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"}})
CHECKED = {"name": "crc32c"}

Rows = dict[str, np.ndarray]
"""Arrays by field, leaves [R, N, ...]."""


class DiskError(RunError):
    """An archive that can't be read: what of it, and why."""


@dataclass(frozen=True)
class Manifest:
    """What an archive holds."""

    num_envs: int
    fields: dict[str, dict[str, Any]]
    """Shape of an element and dtype, by field."""
    about: dict[str, Any]
    """What made it: the task, and the rollout's length."""
    spans: tuple[tuple[int, int], ...] = ()
    """Rows that are there, [first, end) each, in order; between them something went wrong."""

    def write(self, folder: Path) -> None:
        """Replace the folder's."""
        plain = {"format": FORMAT, **vars(self), "spans": [list(span) for span in self.spans]}
        write_atomically(folder / MANIFEST, json.dumps(plain, indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The folder's. Raises DiskError."""
        try:
            plain = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if plain.pop("format") != FORMAT:
                raise DiskError(f"{folder} was written by another version of the archive's format.")
            return cls(**plain | {"spans": tuple((first, end) for first, end in plain["spans"])})
        except FileNotFoundError:
            raise DiskError(f"{folder} holds no {MANIFEST}: it is not an archive.") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DiskError(f"{folder / MANIFEST} can't be read: {error}") from None


@dataclass(frozen=True)
class Episode:
    """A stretch of one environment's rows that belongs to one episode."""

    env: int
    number: int
    """Of the environment's episodes, from 0; those that rewinding went on from are counted anew."""
    first: int
    """Row of its first stored step."""
    end: int
    """Row after its last one."""
    age: int
    """Steps of the episode before `first`: 0 where it is stored from its beginning."""
    ended: int
    """TERMINATED, TRUNCATED or 0: not yet, or not within what is stored."""

    @property
    def whole(self) -> bool:
        """Whether it is there from beginning to end."""
        return self.age == 0 and self.ended > 0


class Reader:
    """What an archive held when it was opened; reading is safe while another process writes."""

    def __init__(self, folder: Path | str, cache_bytes: int = 10**8) -> None:
        """Open it. Raises DiskError."""
        self.folder = Path(folder)
        self.manifest = Manifest.read(self.folder)
        self._context = tensorstore.Context({"cache_pool": {"total_bytes_limit": cache_bytes}})
        self._stores: dict[str, Any] = {}

    @property
    def num_rows(self) -> int:
        """Rows that are there, of every environment."""
        return sum(end - first for first, end in self.manifest.spans)

    def store(self, name: str) -> Any:
        """The array of a field."""
        if name not in self._stores:
            self._stores[name] = opened(self.folder / name, context=self._context)
        return self._stores[name]

    def rows(self, name: str, first: int, end: int, env: int | None = None) -> np.ndarray:
        """Rows [first, end) of a field, of one environment [R, ...] or all [R, N, ...]. Raises DiskError where they are damaged."""
        store = self.store(name)
        return _read(store[first:end] if env is None else store[first:end, env], f"{name}, rows {first} to {end}, in {self.folder}")

    def finals(self, number: int) -> tuple[np.ndarray, Rows]:
        """What the truncated episodes of a block led to: places [K, 2] (row, environment), and observations by field [K, ...]."""
        path = self.folder / "finals" / f"{number}.crc_npz"
        if not path.exists():
            return np.zeros((0, 2), np.int64), {}
        content = path.read_bytes()
        if zlib.crc32(content[4:]).to_bytes(4, "little") != content[:4]:
            raise DiskError(f"{path} is damaged.")
        with np.load(io.BytesIO(content[4:])) as file:
            found = dict(file)
        return found.pop("at"), found

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Pieces [first, end) of the spans that lie within one block each."""
        for first, end in self.manifest.spans:
            for start in range(first // BLOCK * BLOCK, end, BLOCK):
                yield max(start, first), min(start + BLOCK, end)

    def episodes(self, chosen: Callable[[Episode], bool] = lambda _: True) -> list[Episode]:
        """Every stored stretch of an episode, environment by environment, in order of time."""
        number = self.manifest.num_envs
        found: list[list[Episode]] = [[] for _ in range(number)]
        open_first, open_age, open_episode = np.zeros(number, np.int64), np.zeros(number, np.int64), np.zeros(number, np.int64)
        previous = -1

        def close(env: int, end: int, kind: int) -> None:
            if end > open_first[env]:
                found[env].append(Episode(env, int(open_episode[env]), int(open_first[env]), end, int(open_age[env]), kind))

        for first, end in self.blocks():
            if first != previous:
                # The beginning, or rows are missing: whatever was open has no known end.
                for env in range(number if previous >= 0 else 0):
                    close(env, previous, 0)
                heads = {name: _read(self.store(f"heads/{name}")[first // BLOCK], f"heads/{name} in {self.folder}") for name in ("episode", "age")}
                open_first[:], open_age[:], open_episode[:] = first, heads["age"], heads["episode"]
            ends = self.rows("end", first, end)
            for row, env in np.argwhere(ends > 0).tolist():
                close(env, first + row + 1, int(ends[row, env]))
                open_first[env], open_age[env], open_episode[env] = first + row + 1, 0, open_episode[env] + 1
            previous = end
        for env in range(number if previous >= 0 else 0):
            close(env, previous, 0)
        return [self._aged(episode) for env in found for episode in env if chosen(episode)]

    def _aged(self, episode: Episode) -> Episode:
        """With the age that was stored, where episodes may begin at any."""
        if "age" not in self.manifest.fields:
            return episode
        return Episode(**vars(episode) | {"age": int(self.rows("age", episode.first, episode.first + 1, episode.env)[0])})

    def read(self, episode: Episode, start: int | None = None, stop: int | None = None) -> Rows:
        """Steps `start` to `stop` of an episode, counted from its beginning; fields [L, ...].

        Raises:
            DiskError: steps that are not stored, or are damaged.
        """
        low, high = episode.age, episode.age + episode.end - episode.first
        start, stop = low if start is None else start, high if stop is None else stop
        if not low <= start <= stop <= high:
            raise DiskError(f"Of episode {episode.number} of environment {episode.env} steps {low} to {high} are stored, not {start} to {stop}.")
        first, end = episode.first + start - low, episode.first + stop - low
        return {name: self.rows(name, first, end, episode.env) for name in (*self.manifest.fields, "end")}

    def final(self, episode: Episode) -> Rows | None:
        """What its last step led to, fields [...]; None where the world ended, or it is not over."""
        at, fields = self.finals((episode.end - 1) // BLOCK)
        found = np.flatnonzero((at[:, 0] == episode.end - 1) & (at[:, 1] == episode.env))
        return {name: values[found[0]] for name, values in fields.items()} if episode.ended == TRUNCATED and found.size else None

    def verify(self) -> Iterator[str]:
        """Every problem found when all of it is read."""
        for first, end in self.blocks():
            for name in (*self.manifest.fields, "end"):
                try:
                    self.rows(name, first, end)
                except DiskError as error:
                    yield str(error)
            yield from self._verify_heads(first // BLOCK)
        try:
            self.episodes()
        except DiskError as error:
            yield str(error)

    def _verify_heads(self, number: int) -> Iterator[str]:
        """Problems of what belongs to a whole block."""
        try:
            heads = {name: _read(self.store(f"heads/{name}")[number], f"heads/{name}, block {number}, in {self.folder}") for name in HEADS}
            if len(self.finals(number)[0]) != heads["finals"].sum():
                yield f"{self.folder / 'finals' / f'{number}.crc_npz'}: missing or incomplete."
        except DiskError as error:
            yield str(error)


def _read(store: Any, what: str) -> np.ndarray:
    try:
        return store.read().result()
    except ValueError as error:
        raise DiskError(f"{what}: damaged or missing ({str(error).splitlines()[0][:200]}).") from None


def opened(path: Path, dtype: str | None = None, shape: tuple[int, ...] = (), context: Any = None) -> Any:
    """The array in a folder; made with this dtype and shape if it is not there. Raises DiskError."""
    spec: dict[str, Any] = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}, "open": True}
    # A block that is not there is an error, never zeros.
    spec |= {"store_data_equal_to_fill_value": True, "fill_missing_data_reads": False, "recheck_cached_metadata": "open"}
    if dtype is not None and not (path / "zarr.json").exists():
        rank = len(shape)
        block = [1, shape[1]] if path.parent.name == "heads" else [BLOCK, min(COLUMNS, shape[1]), *shape[2:]]
        order = {"name": "transpose", "configuration": {"order": [*range(1, rank), 0]}}
        metadata = {"data_type": dtype, "shape": list(shape), "codecs": [order, *CODECS, CHECKED]}
        spec |= {"create": True, "metadata": metadata | {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": block}}}}
    try:
        return tensorstore.open(spec, context=context).result() if context is not None else tensorstore.open(spec).result()
    except ValueError as error:
        raise DiskError(f"{path} can't be opened: {str(error).splitlines()[0][:200]}") from None
