"""Brax's own PPO as a measured peer: one JSON line for the start, then one for every evaluation.

Stands alone, so that it runs in any environment that has Brax (`benchmarks/peers.py` starts it):

    python benchmarks/peers/brax_ppo.py --env ant --backend spring --steps 3e6 --evals 7 --seed 1

`wall_s` counts from the start of the process, so imports, compilation and evaluation are in it; `imports_s` tells the first apart.
`training_s` and `evaluation_s` are sums of Brax's own clocks, compilation included; `steps_per_s` is training alone, since the last line.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

AWAKE_S = time.monotonic()


def process_age() -> float:
    """Seconds since this process started; where the system does not tell (not Linux), since this script did."""
    try:
        started_ticks = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return time.monotonic() - AWAKE_S


def count(text: str) -> int:
    """An integer that may be written as 3e6."""
    return int(float(text))


def layers(text: str) -> tuple[int, ...]:
    """Widths of hidden layers, as in 32,32,32,32."""
    return tuple(int(width) for width in text.split(","))


def arguments() -> argparse.Namespace:
    """The command line; the defaults are Brax's published ant settings at a size that a small CPU trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ant")
    parser.add_argument("--backend", default="spring")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=count, default=3_000_000, help="rounded up to whole training steps in every interval between evaluations")
    parser.add_argument("--evals", type=int, default=7, help="evaluations, with the one before training")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--unroll", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--minibatches", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--policy-layers", type=layers, default=(32,) * 4)
    parser.add_argument("--value-layers", type=layers, default=(256,) * 5)
    parser.add_argument("--discount", type=float, default=0.97)
    parser.add_argument("--reward-scaling", type=float, default=10.0)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--entropy", type=float, default=1e-2)
    parser.add_argument("--episode-length", type=int, default=1000)
    parser.add_argument("--num-eval-envs", type=int, default=64)
    parser.add_argument("--no-eval", action="store_true", help="report the training rate at the same points, without evaluating")
    parser.add_argument("--devices", type=int, default=1, help="CPU devices that Brax splits the environments over; 1 is how it comes")
    return parser.parse_args()


def introduce(settings: Mapping[str, Any], **more: Any) -> None:
    """Print the first line: what is about to train. Called once everything is imported."""
    import brax
    import jax

    versions = {"brax": brax.__version__, "jax": jax.__version__, "device_kind": jax.devices()[0].device_kind}
    print(json.dumps({"imports_s": round(process_age(), 2), **versions, **more, "settings": settings}), flush=True)


class Reporter:
    """Brax's progress callback: turns its metrics into our lines."""

    def __init__(self) -> None:
        self.evaluation_s = 0.0

    def __call__(self, steps: int, metrics: Mapping[str, Any]) -> None:
        """Print the line of the evaluation at `steps`."""
        self.evaluation_s += float(metrics.get("eval/epoch_eval_time", 0.0))
        window_return = metrics.get("eval/episode_reward")
        row = {
            "env_steps": steps,
            "wall_s": round(process_age(), 2),
            "window_return": None if window_return is None else round(float(window_return), 2),
            "steps_per_s": round(float(metrics.get("training/sps", 0.0)), 1),
            "training_s": round(float(metrics.get("training/walltime", 0.0)), 2),
            "evaluation_s": round(self.evaluation_s, 2),
        }
        print(json.dumps(row), flush=True)


def main() -> None:
    """Train, and print."""
    args = arguments()
    warnings.filterwarnings("ignore")
    import jax

    if args.devices > 1:
        jax.config.update("jax_num_cpu_devices", args.devices)
    import functools

    from brax import envs
    from brax.training.agents.ppo import networks
    from brax.training.agents.ppo import train as ppo

    introduce(vars(args), env_steps_per_update=args.batch * args.unroll * args.minibatches)
    ppo.train(
        environment=envs.get_environment(args.env, backend=args.backend),
        num_timesteps=args.steps,
        episode_length=args.episode_length,
        num_envs=args.num_envs,
        unroll_length=args.unroll,
        batch_size=args.batch,
        num_minibatches=args.minibatches,
        num_updates_per_batch=args.epochs,
        discounting=args.discount,
        reward_scaling=args.reward_scaling,
        learning_rate=args.learning_rate,
        entropy_cost=args.entropy,
        normalize_observations=True,
        network_factory=functools.partial(networks.make_ppo_networks, policy_hidden_layer_sizes=args.policy_layers, value_hidden_layer_sizes=args.value_layers),
        num_evals=args.evals,
        num_eval_envs=args.num_eval_envs,
        deterministic_eval=True,
        run_evals=not args.no_eval,
        seed=args.seed,
        progress_fn=Reporter(),
    )


if __name__ == "__main__":
    main()
