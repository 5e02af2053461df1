"""The archive on disk: what it costs training, how fast it is read, and how the formats compare that it could have used.

    python -m benchmarks.archive training env=ant    # steps/s with and without it, in alternation, and the bytes that it writes
    python -m benchmarks.archive reading env=ant     # steps/s of reading episodes and single steps back
    python -m benchmarks.archive formats             # the same rows in TensorStore's Zarr, HDF5, LMDB and ArrayRecord (their packages must be there)

HDF5 can't be left open and survive a kill without being damaged; that alone would rule it out.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ours, processes
from benchmarks.harness import RESULTS, Row, latest, once, parse

SIDES = {"without": "archive.enabled=false", "with": "archive.enabled=true", "float16": "archive.enabled=true archive.codec=float16"}
BLOCK, COLUMNS = 512, 16


@dataclass(frozen=True)
class Options:
    """What is measured, and how often."""

    env: str = "ant"
    steps: int = 2_000_000
    turns: int = 3
    rows: int = 8192
    """Of the comparison of formats, with `columns` environments and `features` numbers each."""
    columns: int = 256
    features: int = 27
    refresh: bool = False


def training(side: str, options: Options) -> Row:
    """Steps/s of a training, and what it has written."""
    with ours.scratch() as folder:
        run = Path(folder) / "run"
        settings = ours.words(env=options.env, steps=options.steps, eval__every=0, checkpoint__every=0)
        trained = ours.train(run, [*settings, *SIDES[side].split()])
        size = sum(path.stat().st_size for path in (run / "archive").rglob("*") if path.is_file()) if side != "without" else 0
        last = trained.reports[-1]
        return {"steps_per_s": trained.steps_per_s, "bytes": size, "bytes_per_step": size / last["env_steps"], "bytes_per_s": size / last["train_s"]}


def reading(options: Options) -> Row:
    """Steps/s of whole episodes and of single steps anywhere, from an archive that was just written."""
    import numpy as np

    from jaxrl_long.runtime.disk import Reader

    with ours.scratch() as folder:
        run = Path(folder) / "run"
        ours.train(run, [*ours.words(env=options.env, steps=options.steps, eval__every=0), *SIDES["with"].split()])
        begin = time.perf_counter()
        reader = Reader(run / "archive")
        episodes = reader.episodes()
        index_s = time.perf_counter() - begin
        rng, steps = np.random.default_rng(0), 0
        begin = time.perf_counter()
        for number in rng.choice(len(episodes), 64):
            steps += len(reader.read(episodes[number])["reward"])
        episode_s = time.perf_counter() - begin
        rows, envs = rng.integers(0, reader.num_rows, 4096), rng.integers(0, reader.manifest.num_envs, 4096)
        begin = time.perf_counter()
        for name in reader.manifest.fields:
            reader.store(name).vindex[rows, envs].read().result()
        return {
            "index_s": index_s,
            "episodes": len(episodes),
            "episode_steps_per_s": steps / episode_s,
            "single_steps_per_s": len(rows) / (time.perf_counter() - begin),
        }


def formats(kind: str, options: Options) -> Row:
    """MB/s of writing, size as a share of what was written, and steps/s of reading one environment's rows and single steps."""
    import numpy as np

    rng = np.random.default_rng(0)
    # Smooth, as what bodies do is: a walk of small steps.
    data = np.cumsum(rng.normal(size=(options.rows, options.columns, options.features)), axis=0).astype(np.float32) * 0.01
    envs = rng.integers(0, options.columns, 4)
    places = rng.integers(0, options.rows, 256), rng.integers(0, options.columns, 256)
    with ours.scratch() as folder:
        write, column, single = FORMATS[kind](Path(folder), data)
        write_s, column_s, single_s = (_seconds(call) for call in (write, lambda: [column(int(env)) for env in envs], lambda: single(*places)))
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {
        "write_mb_per_s": data.nbytes / write_s / 1e6,
        "share": size / data.nbytes,
        "column_steps_per_s": 4 * options.rows / column_s,
        "single_steps_per_s": 256 / single_s,
    }


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _tensorstore(folder: Path, data: Any) -> tuple[Any, Any, Any]:
    """As the archive does it: a flush after every block."""
    import tensorstore

    codecs = [
        {"name": "transpose", "configuration": {"order": [1, 2, 0]}},
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"}},
        {"name": "crc32c"},
    ]
    grid = {"name": "regular", "configuration": {"chunk_shape": [BLOCK, COLUMNS, data.shape[2]]}}
    metadata = {"data_type": "float32", "shape": list(data.shape), "chunk_grid": grid, "codecs": codecs}
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / "zarr")}, "metadata": metadata, "create": True}
    store = tensorstore.open(spec).result()

    def write() -> None:
        for row in range(0, len(data), BLOCK):
            store[row : row + BLOCK].write(data[row : row + BLOCK]).result()

    return write, lambda env: store[:, env].read().result(), lambda rows, envs: store.vindex[rows, envs].read().result()


def _hdf5(folder: Path, data: Any) -> tuple[Any, Any, Any]:
    import h5py

    file: Any = h5py.File(folder / "a.h5", "w")
    chunks = (BLOCK, COLUMNS, data.shape[2])
    store = file.create_dataset("x", data.shape, "f4", chunks=chunks, compression="lzf", shuffle=True, fletcher32=True)

    def write() -> None:
        for row in range(0, len(data), BLOCK):
            store[row : row + BLOCK] = data[row : row + BLOCK]
            file.flush()

    return write, lambda env: store[:, env], lambda rows, envs: [store[int(row), int(env)] for row, env in zip(rows, envs, strict=True)]


def _lmdb(folder: Path, data: Any) -> tuple[Any, Any, Any]:
    import lmdb  # pyrefly: ignore
    import zstandard  # pyrefly: ignore

    database, packer, unpacker = lmdb.open(str(folder / "lmdb"), map_size=10**10), zstandard.ZstdCompressor(1), zstandard.ZstdDecompressor()
    blocks = _Blocks(data.shape)

    def write() -> None:
        for row in range(0, len(data), BLOCK):
            with database.begin(write=True) as transaction:
                for env in range(0, data.shape[1], COLUMNS):
                    transaction.put(blocks.key(row, env), packer.compress(blocks.packed(data, row, env)))

    def one(row: int, env: int) -> Any:
        with database.begin() as transaction:
            return blocks.unpacked(unpacker.decompress(transaction.get(blocks.key(row, env))))

    return write, *blocks.readers(one)


def _array_record(folder: Path, data: Any) -> tuple[Any, Any, Any]:
    from array_record.python import array_record_module  # pyrefly: ignore

    path, blocks, opened = str(folder / "a.array_record"), _Blocks(data.shape), {}

    def write() -> None:
        writer = array_record_module.ArrayRecordWriter(path, "group_size:1,zstd:1")
        for row in range(0, len(data), BLOCK):
            for env in range(0, data.shape[1], COLUMNS):
                writer.write(blocks.packed(data, row, env))
        writer.close()

    def one(row: int, env: int) -> Any:
        reader = opened.get(path) or opened.setdefault(path, array_record_module.ArrayRecordReader(path))
        return blocks.unpacked(reader.read([row // BLOCK * (data.shape[1] // COLUMNS) + env // COLUMNS])[0])

    return write, *blocks.readers(one)


class _Blocks:
    """The same blocks for formats that only know records."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.rows, _, self.features = shape

    def key(self, row: int, env: int) -> bytes:
        return f"{row // BLOCK:09d}/{env // COLUMNS}".encode()

    def packed(self, data: Any, row: int, env: int) -> bytes:
        return data[row : row + BLOCK, env : env + COLUMNS].transpose(1, 2, 0).tobytes()

    def unpacked(self, content: bytes) -> Any:
        import numpy as np

        return np.frombuffer(content, np.float32).reshape(COLUMNS, self.features, BLOCK)

    def readers(self, one: Callable[[int, int], Any]) -> tuple[Any, Any]:
        def column(env: int) -> Any:
            return [one(row, env)[env % COLUMNS] for row in range(0, self.rows, BLOCK)]

        def single(rows: Any, envs: Any) -> Any:
            return [one(int(row), int(env))[env % COLUMNS, :, row % BLOCK] for row, env in zip(rows, envs, strict=True)]

        return column, single


FORMATS = {"tensorstore": _tensorstore, "hdf5": _hdf5, "lmdb": _lmdb, "array_record": _array_record}


def newest(results: Path = RESULTS) -> list[Row]:
    """The latest row of each measurement."""
    return latest("archive", "measure", "env", "side", "turn", results=results, kind="cpu")


def main() -> None:
    """Measure what is missing."""
    verb, options = parse(Options, verbs=("training", "reading", "formats"))

    def measure(name: str, side: str, run: Callable[[], Row], turn: int) -> Row:
        key = {"measure": name, "env": options.env if name != "formats" else None, "side": side, "turn": turn, "steps": options.steps}
        return once("archive", key, run, refresh=options.refresh)

    if verb in ("", "training"):
        sides: dict[str, Any] = {side: functools.partial(measure, "training", side, functools.partial(training, side, options)) for side in SIDES}
        processes.alternate(sides, options.turns)
    if verb in ("", "reading"):
        measure("reading", "ours", functools.partial(reading, options), 0)
    if verb == "formats":
        sides = {kind: functools.partial(measure, "formats", kind, functools.partial(formats, kind, options)) for kind in FORMATS}
        processes.alternate(sides, options.turns)


if __name__ == "__main__":
    main()
