"""The ring: its speed beside flashbax's trajectory buffer, over capacities; its bytes by codec; and hindsight's time by the length of episodes.

    python -m benchmarks.replay setup        # flashbax's environment in .peers/; needs a network (or FLASHBAX_PYTHON names an interpreter that has it)
    python -m benchmarks.replay speed        # add a rollout and draw a batch of windows: ours and flashbax's in alternation, full, 1e3 to 1e6 rows
    python -m benchmarks.replay bytes        # of a transition of ant
    python -m benchmarks.replay hindsight    # draws in episodes of 1e3 and of 1e6 steps

Each measurement is a process of its own, one after the other; what is there already is not measured again.
"""

import functools
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ours, peers, processes
from benchmarks.harness import RESULTS, Row, latest, once, parse

ROWS = (1_000, 10_000, 100_000, 1_000_000)
SCRIPT = Path(__file__).resolve().parent / "peers" / "flashbax_ring.py"
OWN = peers.FOLDER / "flashbax-env" / "bin" / "python"
TURNS, REPEATS = 2000, 9
CODECS = ("float32", "bfloat16", "float16", "int8", "delta")


@dataclass(frozen=True)
class Options:
    """Sizes: by default ant's, of a small batch."""

    rows: int = 100_000
    envs: int = 16
    rollout: int = 8
    batch: int = 256
    window: int = 2
    obs: int = 27
    action: int = 8
    episode: int = 1000
    codec: str = "float32"
    repeats: int = 3
    refresh: bool = False


def _ring(options: Options, cuts: int = 1) -> tuple[Any, Any, Any, Any]:
    """Layout, an empty ring, and a rollout to write: fields and ends."""
    import jax
    import jax.numpy as jnp

    from jaxrl_long.replay.ring import Ends, Layout, make_ring

    rows = options.rows // options.rollout * options.rollout
    codecs = () if options.codec == "float32" else tuple((field, options.codec) for field in ("obs", "action"))
    layout = Layout(rows, options.rollout, codecs, cuts=cuts, window=options.window)
    shape = (options.rollout, options.envs)
    fields = {"obs": jnp.ones((*shape, options.obs)), "action": jnp.ones((*shape, options.action)), "reward": jnp.ones(shape)}
    ends = Ends(jnp.zeros(shape, bool), jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32), jnp.ones((*shape, options.obs)))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), fields)

    def make() -> Any:
        return make_ring(layout, shapes, jax.ShapeDtypeStruct((options.envs, options.obs), jnp.float32), options.envs)

    return layout, make, fields, ends


def _timed(turns: Any, state: Any) -> float:
    """Median seconds of one turn of a jitted `turns(state, key) -> (state, number)`."""
    import jax

    state, _ = jax.block_until_ready(turns(state, jax.random.key(0)))
    seconds = []
    for number in range(REPEATS):
        begin = time.perf_counter()
        state, _ = jax.block_until_ready(turns(state, jax.random.key(number)))
        seconds.append((time.perf_counter() - begin) / TURNS)
    return statistics.median(seconds)


def own_speed(options: Options) -> Row:
    """Seconds of adding a rollout and drawing a batch of windows, in this process."""
    import jax
    import jax.numpy as jnp

    from jaxrl_long.replay.ring import write
    from jaxrl_long.replay.sampling import View

    layout, make, fields, ends = _ring(options)

    def turn(ring: Any, key: Any) -> tuple[Any, Any]:
        ring = write(ring, layout, fields, ends, jnp.int32(0))
        view = View(ring, layout)
        place, _ = view.draw(key, options.batch)
        drawn = {name: view.window(name, place, options.window) for name in fields}
        return ring, sum(jnp.sum(leaf) for leaf in jax.tree.leaves((drawn, view.ends(place, options.window))))

    @functools.partial(jax.jit, donate_argnums=0)
    def turns(ring: Any, key: Any) -> tuple[Any, Any]:
        ring, sums = jax.lax.scan(turn, ring, jax.random.split(key, TURNS))
        return ring, jnp.sum(sums)

    # Full, so that draws go everywhere.
    full = jax.jit(lambda: make().replace(filled=jnp.int32(layout.capacity)))()
    return {"turn_s": _timed(turns, full), "full": True}


def hindsight(options: Options) -> Row:
    """Seconds of drawing later steps of a batch's episodes, all of which have `episode` steps."""
    import jax
    import jax.numpy as jnp

    from jaxrl_long.replay.hindsight import future
    from jaxrl_long.replay.ring import TRUNCATED, Count
    from jaxrl_long.replay.sampling import View

    layout, make, _, _ = _ring(options)

    def filled() -> Any:
        ring, rows = make(), jnp.arange(layout.capacity)
        end = jnp.broadcast_to((((rows + 1) % options.episode == 0) * TRUNCATED).astype(jnp.uint8)[:, None], ring.end.shape)
        before = jnp.broadcast_to((rows[:: layout.length] // options.episode).astype(jnp.int32)[:, None], ring.age.shape)
        return ring.replace(end=end, before=Count(before, jnp.copy(before)), filled=jnp.int32(layout.capacity))

    def turn(ring: Any, key: Any) -> tuple[Any, Any]:
        view = View(ring, layout)
        place = view.uniform(key, options.batch)
        later = future(view, place, view.standing(place), key)
        return ring, jnp.sum(view.field("obs", later))

    @functools.partial(jax.jit, donate_argnums=0)
    def turns(ring: Any, key: Any) -> tuple[Any, Any]:
        ring, sums = jax.lax.scan(turn, ring, jax.random.split(key, TURNS))
        return ring, jnp.sum(sums)

    return {"turn_s": _timed(turns, jax.jit(filled)())}


def size(options: Options) -> Row:
    """Bytes of a transition, everything that the ring holds of it included; and of flashbax's item buffer, which holds the next observation too."""
    import jax

    _, make, _, _ = _ring(options, cuts=2 + options.rows // 1000)
    ring = jax.eval_shape(make)
    taken = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(ring))
    item = 4 * (2 * options.obs + options.action + 1) + 2
    return {"bytes": taken / (options.rows // options.rollout * options.rollout * options.envs), "item_bytes": item}


def setup() -> None:
    """Make flashbax's environment if it is missing."""
    if not OWN.exists():
        subprocess.run([sys.executable, "-m", "venv", str(OWN.parent.parent)], check=True)
    subprocess.run([str(OWN), "-m", "pip", "install", "-q", "flashbax==0.1.3"], check=True)


def theirs(options: Options) -> Row:
    """The peer's time for the same."""
    python = os.environ.get("FLASHBAX_PYTHON") or str(OWN)
    asked = {name: getattr(options, name) for name in ("rows", "envs", "rollout", "batch", "window", "obs", "action")}
    with ours.scratch() as folder:
        words = [f"--{name}={value}" for name, value in {**asked, "turns": TURNS, "repeats": REPEATS}.items()]
        command = processes.Command([python, str(SCRIPT), *words])
        return processes.run(command, Path(folder) / "peer.jsonl").rows[-1]


def apart(verb: str, options: Options) -> Row:
    """A measurement of ours in a process of its own."""
    words = ours.words(**{name: value for name, value in vars(options).items() if name != "refresh"})
    with ours.scratch() as folder:
        return processes.run(processes.module("benchmarks.replay", verb, *words), Path(folder) / "own.jsonl").rows[-1]


def newest(results: Path = RESULTS) -> list[Row]:
    """The latest row of each measurement."""
    return latest("replay", "measure", "side", "rows", "episode", "codec", "turn", results=results, kind="cpu")


def main() -> None:
    """Measure what is missing; `own-...` measures in this process and only prints."""
    import json
    from dataclasses import replace

    own = {"own-speed": own_speed, "own-hindsight": hindsight, "own-bytes": size}
    verb, options = parse(Options, verbs=("setup", "speed", "bytes", "hindsight", *own))
    if verb in own:
        print(json.dumps(own[verb](options)))
        return
    if verb == "setup":
        setup()
        return

    def side(measure: str, name: str, sizes: Options, run: Any, turn: int) -> Row:
        key = {"measure": measure, "side": name, "turn": turn, "rows": sizes.rows, "episode": sizes.episode, "codec": sizes.codec}
        return once("replay", key, functools.partial(run, sizes), refresh=options.refresh)

    if verb == "bytes":
        for codec in CODECS:
            sizes = replace(options, codec=codec, rollout=32, envs=256, rows=4096)
            side("bytes", "ours", sizes, functools.partial(apart, "own-bytes"), 0)
    if verb == "hindsight":
        both = {str(length): replace(options, rows=1_000_000, episode=length) for length in (1_000, 1_000_000)}
        run = functools.partial(apart, "own-hindsight")
        processes.alternate({name: functools.partial(side, "hindsight", "ours", sizes, run) for name, sizes in both.items()}, options.repeats)
    if verb in ("", "speed"):
        for rows in ROWS:
            sizes = replace(options, rows=rows)
            runs = {"ours": functools.partial(apart, "own-speed"), "flashbax": theirs}
            processes.alternate({name: functools.partial(side, "speed", name, sizes, run) for name, run in runs.items()}, options.repeats)


if __name__ == "__main__":
    main()
