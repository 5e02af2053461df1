"""Adds rows to an archive on disk, block by block, so that what was said to be there always is. Its form: `disk.py`."""

import io
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_long.runtime.disk import BLOCK, HEADS, MANIFEST, DiskError, Manifest, Reader, Rows, opened


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
            store = opened(self.folder / name, array.dtype.name, (end, *array.shape[1:]))
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
