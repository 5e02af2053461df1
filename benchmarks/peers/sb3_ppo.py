"""Stable-Baselines3's PPO, or SBX's (the same on jax), as a measured peer: one JSON line. Stands alone (`benchmarks/others.py` starts it).

    python benchmarks/peers/sb3_ppo.py --library sbx --steps 60000

gymnasium's Ant-v5 in MuJoCo on the CPU, a process for each environment, the library's own settings: what somebody without a GPU would pick.
The rate is that of whole updates after the first, in which everything is compiled and touched for the first time.
"""

import argparse
import json
import time
import warnings
from typing import Any


def trainer(library: str) -> Any:
    """The PPO class of the library."""
    if library == "sbx":
        from sbx import PPO
    else:
        from stable_baselines3 import PPO
    return PPO


def main() -> None:
    """Train, and print the rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=("sb3", "sbx"), default="sb3")
    parser.add_argument("--env", default="Ant-v5")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=98_304)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    begin = time.perf_counter()
    algorithm = trainer(args.library)
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import SubprocVecEnv

    imports_s = time.perf_counter() - begin

    class Clock(BaseCallback):
        """Notes when each rollout begins: whole updates lie between."""

        def __init__(self) -> None:
            super().__init__()
            self.marks: list[tuple[int, float]] = []

        def _on_rollout_start(self) -> None:
            self.marks.append((self.num_timesteps, time.perf_counter()))

        def _on_step(self) -> bool:
            return True

    clock = Clock()
    environments = make_vec_env(args.env, n_envs=args.num_envs, vec_env_cls=SubprocVecEnv)
    algorithm("MlpPolicy", environments, device="cpu").learn(args.steps, callback=clock)
    if len(clock.marks) < 3:
        parser.error(f"--steps={args.steps} is too few for two updates of {args.num_envs} environments.")
    second, last = clock.marks[1], clock.marks[-1]
    rate = (last[0] - second[0]) / (last[1] - second[1])
    startup_s = round(second[1] - begin - second[0] / rate, 1)
    print(json.dumps({"steps_per_s": round(rate, 1), "startup_s": startup_s, "imports_s": imports_s, "settings": vars(args), "rollouts": len(clock.marks)}))
    environments.close()


if __name__ == "__main__":
    main()
