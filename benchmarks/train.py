"""How fast training is, each time against something measured in alternation with it.

    python -m benchmarks.train share      # default ant, against the environment alone on the same cores
    python -m benchmarks.train horizon    # horizon=1e6 against 1e3: rate and peak memory
    python -m benchmarks.train envs       # num_envs=4096 against 256
    python -m benchmarks.train scaling    # one device, two, four ... up to one per core
    python -m benchmarks.train peer       # Brax's PPO with the same networks, environments and updates
    python -m benchmarks.train startup    # process start to the first report, with an empty and a warm compilation cache
    python -m benchmarks.train gpu        # thousands of environments: alone, with a policy, training, Brax's PPO (see gpu.sh)

Every run is one row in results/train.jsonl; what is there already is not measured again (`refresh=true` does).
"""

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import ours, peers, processes
from benchmarks.harness import Row, jsonl, numbers, once, parse

IMPORTS = "import time; t = time.perf_counter(); import jax, flax, optax, orbax.checkpoint; a = time.perf_counter(); import brax.envs; b = time.perf_counter()"
PRINT = "import json; print(json.dumps({'other_imports_s': round(a - t, 2), 'brax_import_s': round(b - a, 2)}))"


@dataclass(frozen=True)
class Options:
    """What is common to the measures."""

    env: str = "ant"
    backend: str = "spring"
    """Physics of the peer and of the ceiling; ours is asked for the same."""
    steps: int = 1_200_000
    """Environment steps of each of our runs."""
    num_envs: int = 256
    many_envs: int = 4096
    repeats: int = 3
    peer_interval: int = 204_800
    """Environment steps between two reports of the peer."""
    peer_reports: int = 5
    peer_devices: int = 1
    """CPU devices of the peer; 1 is how it comes."""
    gpu_envs: str = "4096,1024,16384"
    gpu_steps: int = 20_000_000
    """Environment steps of a training of ours on a GPU."""
    policy: str = "64,64"
    """Hidden layers of the policy whose rollout the GPU's training is compared with."""
    refresh: bool = False


def side(options: Options, measure: str, name: str, run: Callable[[Path], Row]) -> Callable[[int], Row]:
    """One side of a comparison as a function of the turn: recorded once, in a scratch folder that is gone afterwards."""

    def of_turn(turn: int) -> Row:
        key = {"measure": measure, "side": name, "turn": turn, "env": options.env, "backend": options.backend}
        with ours.scratch() as folder:
            return once("train", key, lambda: run(Path(folder)), refresh=options.refresh)

    return of_turn


def our_rate(folder: Path, *, options: Options, **settings: int | str) -> Row:
    """Rate and memory of one training of ours, evaluated only at its end."""
    common = {"env": options.env, "env__backend": options.backend, "steps": options.steps, "eval__every": 0}
    asked = ours.words(**{**common, **settings})
    trained = ours.train(folder / "run", asked)
    return {"steps_per_s": trained.steps_per_s, "peak_bytes": trained.peak_bytes, "reports": len(trained.reports), "settings": asked}


def ceiling(folder: Path, *, options: Options, **settings: int | str) -> Row:
    """The environment alone (or with a `policy`), best over blocks."""
    asked = {"env": options.env, "backend": options.backend, "num_envs": options.num_envs, **settings}
    words = ours.words(**asked, write="false")
    row = processes.run(processes.module("benchmarks.rollout", *words), folder / "rollout.jsonl").rows[-1]
    return {"steps_per_s": row["steps_per_s"], "block": row["block"], "devices": row["devices"], "settings": words}


def brax_options(options: Options) -> peers.BraxOptions:
    """Brax's published ant settings, at our number of environments and a batch that a small CPU trains."""
    steps = options.peer_interval * options.peer_reports
    return peers.BraxOptions(
        env=options.env, backend=options.backend, steps=steps, evals=1 + options.peer_reports, num_envs=options.num_envs, devices=options.peer_devices
    )


def brax_rate(folder: Path, *, asked: peers.BraxOptions) -> Row:
    """Training rate of Brax's PPO by its own clock, without evaluation; it compiles in its first two intervals, which do not count."""
    start, *reports = processes.run(peers.brax_command(asked, evaluate=False), folder / "brax.jsonl").rows
    rate = ours.steady([row["steps_per_s"] for row in reports], warmup=2)
    return {"steps_per_s": rate, "reports": len(reports), **peers.brax_identity(), "brax": start["brax"], "jax": start["jax"], "settings": start["settings"]}


def same_as_brax(brax: peers.BraxOptions) -> dict[str, int | str]:
    """Our settings for the work that Brax does in an update.

    Brax: env steps = batch x unroll x minibatches = 128 x 5 x 32 = 20480 = 256 environments x 80 steps, a gradient step on 128 x 5 = 640
    of them, 32 of those per epoch, 4 epochs. Ours: rollout_length=80, and 20480 / 32 = 640 samples per gradient step.
    """
    return {
        "num_envs": brax.num_envs,
        "rollout_length": brax.rollout_length,
        "algorithm__minibatches": brax.minibatches,
        "algorithm__epochs": brax.epochs,
        "algorithm__policy_layers": f"[{brax.policy_layers}]",
        "algorithm__value_layers": f"[{brax.value_layers}]",
        "algorithm__discount": str(brax.discount),
        "algorithm__learning_rate": "3e-4",
        "algorithm__schedule": "constant",
        "algorithm__entropy": "1e-2",
    }


def share(options: Options) -> None:
    """Our training with default settings as a share of the environment alone."""
    sides = {
        "ceiling": side(options, "share", "ceiling", functools.partial(ceiling, options=options)),
        "ours": side(options, "share", "ours", functools.partial(our_rate, options=options)),
    }
    processes.alternate(sides, options.repeats)


def horizon(options: Options) -> None:
    """Rate and peak memory must not depend on how long episodes are."""
    lengths = (1_000, 1_000_000)
    sides = {str(length): side(options, "horizon", str(length), functools.partial(our_rate, options=options, horizon=length)) for length in lengths}
    processes.alternate(sides, options.repeats)


def environments(options: Options) -> None:
    """Few and many environments."""
    counts = (options.num_envs, options.many_envs)
    sides = {str(count): side(options, "envs", str(count), functools.partial(our_rate, options=options, num_envs=count)) for count in counts}
    processes.alternate(sides, options.repeats)


def scaling(options: Options) -> None:
    """The same training on one device, two, four ... A CPU's devices are its cores; XLA may give the work of one device to several of them."""
    counts = [2**power for power in range((os.cpu_count() or 1).bit_length())]
    sides = {str(count): side(options, "scaling", str(count), functools.partial(our_rate, options=options, devices=count)) for count in counts}
    processes.alternate(sides, options.repeats)


def peer(options: Options) -> None:
    """Ours and Brax's PPO at the same work."""
    peers.require_brax()
    name = "brax" if options.peer_devices == 1 else f"brax on {options.peer_devices} devices"
    asked = brax_options(options)
    sides = {
        name: side(options, "peer", name, functools.partial(brax_rate, asked=asked)),
        "ours": side(options, "peer", "ours", functools.partial(our_rate, options=options, **same_as_brax(asked))),
    }
    processes.alternate(sides, options.repeats)


def first_report(folder: Path, *, options: Options, prepare: bool) -> Row:
    """Seconds from process start to the first report; `prepare` fills the compilation cache with a run before the measured one."""
    asked = ours.words(env=options.env, env__backend=options.backend, steps=options.steps, compilation_cache=folder / "cache")
    if prepare:
        ours.train(folder / "before", asked, until=_reported)
    reports = ours.train(folder / "run", asked, until=_reported).reports
    return {"first_report_s": reports[0]["wall_s"], **_imports(folder)}


def _reported(metrics: Path) -> bool:
    return bool(jsonl(metrics))


def _imports(folder: Path) -> Row:
    """Seconds that importing takes, in a process of its own right after the measured one: part of `first_report_s`."""
    return processes.run(processes.Command([sys.executable, "-W", "ignore", "-c", f"{IMPORTS}\n{PRINT}"]), folder / "imports.jsonl").rows[-1]


def startup(options: Options) -> None:
    """Process start to the first report."""
    caches = {"empty cache": False, "warm cache": True}
    sides = {name: side(options, "startup", name, functools.partial(first_report, options=options, prepare=warm)) for name, warm in caches.items()}
    processes.alternate(sides, options.repeats)


def gpu(options: Options) -> None:
    """One turn at each number of environments, and Brax's PPO with its published batch (2048 x 5 x 32) at the first of them."""
    counts = numbers(options.gpu_envs)
    big = replace(options, steps=options.gpu_steps)
    sides: dict[str, Callable[[Path], Row]] = {}
    for count in counts:
        alone = {"num_envs": count, "blocks": "0"}
        sides[f"alone, {count}"] = functools.partial(ceiling, options=big, **alone)
        sides[f"with a policy, {count}"] = functools.partial(ceiling, options=big, policy=options.policy, **alone)
        sides[f"training, {count}"] = functools.partial(our_rate, options=big, num_envs=count)
    brax = replace(brax_options(options), num_envs=counts[0], batch=2048, devices=1)
    brax = replace(brax, steps=brax.env_steps_per_update * 16 * options.peer_reports)
    sides[f"training as Brax does, {counts[0]}"] = functools.partial(our_rate, options=big, **same_as_brax(brax))
    if peers.brax_source():
        sides[f"Brax PPO, {counts[0]}"] = functools.partial(brax_rate, asked=brax)
    else:
        print("Brax's PPO is left out: BRAX_SOURCE names no checkout of its main branch, and .peers/ has none.")
    processes.alternate({name: side(options, "gpu", name, run) for name, run in sides.items()}, 1)


MEASURES = {"share": share, "horizon": horizon, "envs": environments, "scaling": scaling, "peer": peer, "startup": startup, "gpu": gpu}


def main() -> None:
    """One measure, or all of a CPU's where none is named."""
    verb, options = parse(Options, verbs=tuple(MEASURES))
    for name in [verb] if verb else [name for name in MEASURES if name != "gpu"]:
        MEASURES[name](options)


if __name__ == "__main__":
    main()
