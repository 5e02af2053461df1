"""An archive of steps on disk: written while training runs, read back by environment, episode and step.

A table of rows (steps in time) and columns (environments), an array per field, cut into blocks of BLOCK rows and COLUMNS columns
that are compressed, check-summed and replaced whole. `archive.json` says which rows are there; it is replaced last, so that a process
that dies at any moment leaves what it had committed. Arrays are Zarr, version 3: other programs can read them.
"""

import io
import json
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
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


class Writer:
    """The one process that adds rows to an archive, in order."""

    def __init__(self, folder: Path, num_envs: int, fields: Rows, row: int, about: Mapping[str, Any], limit: float = 0.0) -> None:
        """Go on at `row`, or begin there. `fields` shows the shapes and dtypes of rows [R, N, ...].

        What the folder holds of later rows is forgotten: a run that was resumed takes these steps again. `limit`: bytes; 0: none.

        Raises:
            DiskError: the folder holds an archive of other steps.
        """
        self.folder, self.row, self.limit = folder, row, limit
        shapes = {name: {"shape": list(array.shape[2:]), "dtype": str(array.dtype)} for name, array in fields.items()}
        self.manifest = Manifest(num_envs, shapes, dict(about))
        if (folder / MANIFEST).exists():
            found = Manifest.read(folder)
            if (found.num_envs, found.fields) != (num_envs, shapes):
                raise DiskError(f"{folder} holds steps of another kind ({found.num_envs} environments of {', '.join(found.fields)}). Move it away.")
            spans = tuple((first, min(end, row)) for first, end in found.spans if first < row)
            self.manifest = Manifest(num_envs, shapes, dict(about), spans)
        folder.mkdir(parents=True, exist_ok=True)
        self._stores: dict[str, Any] = {}
        self._buffer = {name: np.zeros((BLOCK, *array.shape[1:]), array.dtype) for name, array in fields.items()}
        self._buffer["end"] = np.zeros((BLOCK, num_envs), np.uint8)
        self._heads = {name: np.zeros((1, num_envs), np.int32) for name in HEADS}
        self._finals: list[tuple[np.ndarray, Rows]] = []
        if not self.manifest.spans or self.manifest.spans[-1][1] != row:
            # Rows are missing: what follows begins with a block of its own.
            begin = -(-row // BLOCK) * BLOCK
            self.manifest = Manifest(num_envs, shapes, dict(about), (*self.manifest.spans, (begin, begin)))
        elif row % BLOCK:
            self._reload(row // BLOCK * BLOCK)
        self.bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    def _reload(self, first: int) -> None:
        """The rows before `row` of its block, which will be written whole again."""
        reader = Reader(self.folder)
        for name in self._buffer:
            self._buffer[name][: self.row - first] = reader.rows(name, first, self.row)
        for name in self._heads:
            self._heads[name][:] = reader.store(f"heads/{name}")[first // BLOCK].read().result()
        at, obs = reader.finals(first // BLOCK)
        kept = at[:, 0] < self.row
        if kept.any():
            self._finals = [(at[kept], {name: values[kept] for name, values in obs.items()})]

    def append(self, rows: Rows, end: np.ndarray, episode: np.ndarray, age: np.ndarray, finals: tuple[np.ndarray, Rows] | None = None) -> None:
        """Take in the next rows [R, N, ...], with how each ended its episode, uint8 [R, N].

        `episode` and `age` [N] are those of the first row. `finals` are what truncated episodes led to: their places [K, 2] (row
        after the first of these, environment), and the observations by field [K, ...].
        """
        given, total = {**rows, "end": end}, end.shape[0]
        done = min(total, max(0, self.manifest.spans[-1][0] - self.row))
        self.row += done
        while done < total:
            at = self.row % BLOCK
            if at == 0:
                before = end[:done] > 0
                since = before[::-1].argmax(axis=0) if done else 0
                self._heads["episode"][0] = episode + before.sum(axis=0)
                self._heads["age"][0] = np.where(before.any(axis=0), since, age + done)
            count = min(BLOCK - at, total - done)
            for name, array in given.items():
                self._buffer[name][at : at + count] = array[done : done + count]
            if finals is not None:
                inside = (finals[0][:, 0] >= done) & (finals[0][:, 0] < done + count)
                if inside.any():
                    place = finals[0][inside] + [self.row - done, 0]
                    self._finals.append((place, {name: values[inside] for name, values in finals[1].items()}))
            done, self.row = done + count, self.row + count
            if self.row % BLOCK == 0:
                self._commit()

    def flush(self) -> None:
        """Commit what was taken in."""
        if self.row % BLOCK and self.row > self.manifest.spans[-1][0]:
            self._commit()

    def _commit(self) -> None:
        """Write the block that ends with the newest row, then say that it is there."""
        number, count = (self.row - 1) // BLOCK, (self.row - 1) % BLOCK + 1
        first = number * BLOCK
        before = self._size(number)
        self._write_finals(number)
        writes = [self._write(name, array[:count], first) for name, array in self._buffer.items()]
        writes += [self._write(f"heads/{name}", array, number) for name, array in self._heads.items()]
        for write in writes:
            write.result()
        spans = (*self.manifest.spans[:-1], (self.manifest.spans[-1][0], self.row))
        self.manifest = Manifest(self.manifest.num_envs, self.manifest.fields, self.manifest.about, spans)
        self.manifest.write(self.folder)
        self.bytes += self._size(number) - before
        if count == BLOCK:
            self._finals = []
            self._heads["finals"][:] = 0
        self._forget()

    def _write(self, name: str, array: np.ndarray, first: int) -> Any:
        store = self._stores.get(name)
        end = -(-(first + array.shape[0]) // BLOCK) * BLOCK
        if store is None:
            store = _opened(self.folder / name, array.dtype.name, (end, *array.shape[1:]))
        if store.shape[0] < end:
            store = store.resize(exclusive_max=[end, *[None] * (array.ndim - 1)]).result()
        self._stores[name] = store
        return store[first : first + array.shape[0]].write(np.ascontiguousarray(array))

    def _write_finals(self, number: int) -> None:
        """All of the block's together, in a file that is replaced whole."""
        folder = self.folder / "finals"
        place = np.concatenate([np.zeros((0, 2), np.int64), *(at for at, _ in self._finals)])
        self._heads["finals"][0] = np.bincount(place[:, 1], minlength=self.manifest.num_envs)
        if not len(place):
            # Of steps that are taken again.
            (folder / f"{number}.crc_npz").unlink(missing_ok=True)
            return
        folder.mkdir(exist_ok=True)
        together = {name: np.concatenate([values[name] for _, values in self._finals]) for name in self._finals[0][1]}
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, at=place, **together)
        draft = folder / f".{number}"
        draft.write_bytes(zlib.crc32(content.getvalue()).to_bytes(4, "little") + content.getvalue())
        draft.replace(folder / f"{number}.crc_npz")

    def _size(self, number: int) -> int:
        return sum(path.stat().st_size for folder in self._block(number) for path in ([folder] if folder.is_file() else folder.rglob("*")) if path.is_file())

    def _block(self, number: int) -> Iterator[Path]:
        """Files and folders that belong to one block of rows."""
        for name in (*self._buffer, *(f"heads/{name}" for name in self._heads)):
            yield self.folder / name / "c" / str(number)
        yield self.folder / "finals" / f"{number}.crc_npz"

    def _forget(self) -> None:
        """Drop the oldest blocks while there is too much; the newest stays."""
        while self.limit and self.bytes > self.limit and self.manifest.spans[0][0] // BLOCK < (self.row - 1) // BLOCK:
            number = self.manifest.spans[0][0] // BLOCK
            spans = tuple((max(first, (number + 1) * BLOCK), end) for first, end in self.manifest.spans if end > (number + 1) * BLOCK)
            self.manifest = Manifest(self.manifest.num_envs, self.manifest.fields, self.manifest.about, spans)
            # Said first: what is half removed is not looked for.
            self.manifest.write(self.folder)
            self.bytes -= self._size(number)
            for part in self._block(number):
                if part.is_dir():
                    shutil.rmtree(part)
                else:
                    part.unlink(missing_ok=True)


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
            self._stores[name] = _opened(self.folder / name, context=self._context)
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


def _opened(path: Path, dtype: str | None = None, shape: tuple[int, ...] = (), context: Any = None) -> Any:
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
