"""Brax's own SAC as a measured peer: one JSON line for the start, then one for every evaluation, as `brax_ppo.py` prints them.

    python benchmarks/peers/brax_sac.py --env hopper --steps 300000 --seed 1

The defaults are those that Brax publishes for hopper.
"""

import argparse
import warnings

from brax_ppo import Reporter, count, introduce


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="hopper")
    parser.add_argument("--backend", default="spring")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=count, default=300_000)
    parser.add_argument("--evals", type=int, default=11, help="evaluations, with the one before training")
    parser.add_argument("--num-envs", type=int, default=128)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--gradients", type=int, default=64, help="gradient steps after each step of all environments")
    parser.add_argument("--discount", type=float, default=0.997)
    parser.add_argument("--reward-scaling", type=float, default=30.0)
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    parser.add_argument("--min-replay", type=count, default=8192)
    parser.add_argument("--max-replay", type=count, default=1_048_576)
    parser.add_argument("--episode-length", type=int, default=1000)
    parser.add_argument("--num-eval-envs", type=int, default=64)
    return parser.parse_args()


def main() -> None:
    """Train, and print."""
    args = arguments()
    warnings.filterwarnings("ignore")
    from brax import envs
    from brax.training.agents.sac import train as sac

    introduce(vars(args))
    sac.train(
        environment=envs.get_environment(args.env, backend=args.backend),
        num_timesteps=args.steps,
        episode_length=args.episode_length,
        num_envs=args.num_envs,
        num_eval_envs=args.num_eval_envs,
        learning_rate=args.learning_rate,
        discounting=args.discount,
        seed=args.seed,
        batch_size=args.batch,
        num_evals=args.evals,
        normalize_observations=True,
        reward_scaling=args.reward_scaling,
        min_replay_size=args.min_replay,
        max_replay_size=args.max_replay,
        grad_updates_per_step=args.gradients,
        deterministic_eval=True,
        progress_fn=Reporter(),
    )


if __name__ == "__main__":
    main()
