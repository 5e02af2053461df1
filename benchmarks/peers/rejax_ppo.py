"""rejax's PPO as a measured peer: one JSON line. Stands alone, in an environment that has rejax and Brax (`benchmarks/others.py` starts it).

    python benchmarks/peers/rejax_ppo.py --env ant --backend spring --updates 20

The training function is compiled first, then run; every run begins with a fresh agent and is evaluated only at its end, by a callback that does nothing.
"""

import argparse
import json
import statistics
import time
import warnings


def main() -> None:
    """Train a few times, and print the median rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ant")
    parser.add_argument("--backend", default="spring")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--rollout-length", type=int, default=32)
    parser.add_argument("--minibatches", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    begin = time.perf_counter()
    import jax
    import rejax
    from rejax.compat.brax2gymnax import create_brax

    imports_s = time.perf_counter() - begin
    env, env_params = create_brax(args.env, backend=args.backend)
    steps = args.num_envs * args.rollout_length * args.updates
    algorithm = rejax.PPO.create(
        env=env,
        env_params=env_params,
        agent_kwargs={"hidden_layer_sizes": (64, 64)},
        num_envs=args.num_envs,
        num_steps=args.rollout_length,
        num_minibatches=args.minibatches,
        num_epochs=args.epochs,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
        normalize_observations=True,
        normalize_rewards=True,
        gamma=0.97,
    ).replace(eval_callback=lambda algorithm, state, key: jax.numpy.zeros(()))  # noqa: ARG005
    begin = time.perf_counter()
    train = jax.jit(lambda key: algorithm.train(key)).lower(jax.random.key(0)).compile()
    compile_s = time.perf_counter() - begin
    seconds = []
    for repeat in range(1 + args.repeats):
        begin = time.perf_counter()
        jax.block_until_ready(train(jax.random.key(repeat)))
        seconds.append(time.perf_counter() - begin)
    # The first run touches all memory for the first time.
    rate = steps / statistics.median(seconds[1:])
    print(json.dumps({"steps_per_s": round(rate, 1), "imports_s": imports_s, "compile_s": compile_s, "settings": vars(args), "jax": jax.__version__}))


if __name__ == "__main__":
    main()
