"""Sample Factory's PPO as a measured peer: one JSON line. Stands alone (`benchmarks/others.py` starts it).

    python benchmarks/peers/sf_ppo.py --steps 294912

gymnasium's Ant-v4 in MuJoCo (the newest that its examples know) on the CPU, its own settings for MuJoCo with a worker for each core.
The rate is that of its own reports, one every five seconds, from the third to the last.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time


def main() -> None:
    """Train, and print the rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="mujoco_ant")
    parser.add_argument("--steps", type=int, default=294_912)
    args = parser.parse_args()
    # Its reports carry this clock's time.
    began, begin = time.time(), time.perf_counter()
    from sample_factory.train import make_runner
    from sf_examples.mujoco.train_mujoco import parse_mujoco_cfg, register_mujoco_components

    imports_s = time.perf_counter() - begin
    register_mujoco_components()
    # It logs on standard output.
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        words = [f"--env={args.env}", "--device=cpu", f"--train_for_env_steps={args.steps}", f"--train_dir={folder}", "--experiment=peer"]
        _, runner = make_runner(parse_mujoco_cfg([*words, f"--num_workers={os.cpu_count()}"]))
        runner.init()
        runner.run()
    reports = list(runner.fps_stats)
    if len(reports) < 4:
        parser.error(f"--steps={args.steps} is too few for four reports.")
    (early_s, early), (late_s, late) = reports[2], reports[-1]
    rate = (late - early) / (late_s - early_s)
    startup_s = round(early_s - began - early / rate, 1)
    print(json.dumps({"steps_per_s": round(rate, 1), "startup_s": startup_s, "imports_s": imports_s, "settings": vars(args)}))


if __name__ == "__main__":
    main()
