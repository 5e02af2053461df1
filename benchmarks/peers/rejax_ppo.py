"""rejax's PPO as a measured peer: JSON lines. Stands alone, in an environment that has rejax and Brax (`benchmarks/others.py` starts it).

    python benchmarks/peers/rejax_ppo.py --env ant --backend spring --updates 20       # one line: the training rate
    python benchmarks/peers/rejax_ppo.py --curve --steps 4096000 --seed 0              # a line for each evaluation

For the rate the training function is compiled first, then run; every run begins with a fresh agent and is evaluated only at its end, by a callback that
does nothing. For a curve its iterations run between evaluations of ours: the mean of its policy, in copies that count until they fall.
"""

import argparse
import importlib
import json
import statistics
import time
import warnings
from typing import Any

BEGIN = time.perf_counter()


def algorithm_of(args: argparse.Namespace, steps: int) -> Any:
    """Rejax's PPO with networks and updates like ours."""
    import jax
    import rejax
    from rejax.compat.brax2gymnax import create_brax

    env, env_params = create_brax(args.env, backend=args.backend)
    return rejax.PPO.create(
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
    ).replace(eval_callback=lambda *_: jax.numpy.zeros(()))


def rate(args: argparse.Namespace, imports_s: float) -> None:
    """Train a few times, and print the median rate."""
    import jax

    steps = args.num_envs * args.rollout_length * args.updates
    algorithm = algorithm_of(args, steps)
    begin = time.perf_counter()
    train = jax.jit(lambda key: algorithm.train(key)).lower(jax.random.key(0)).compile()
    compile_s = time.perf_counter() - begin
    seconds = []
    for repeat in range(1 + args.repeats):
        begin = time.perf_counter()
        jax.block_until_ready(train(jax.random.key(repeat)))
        seconds.append(time.perf_counter() - begin)
    # The first run touches all memory for the first time.
    median = steps / statistics.median(seconds[1:])
    startup = {"startup_s": round(imports_s + compile_s, 1), "imports_s": imports_s, "compile_s": compile_s}
    print(json.dumps({"steps_per_s": round(median, 1), **startup, "settings": vars(args), "jax": jax.__version__}))


def evaluation(args: argparse.Namespace, algorithm: Any) -> Any:
    """state, key -> mean reward that `num_eval_envs` copies collect over `window` steps or until they fall; compiled."""
    import jax
    import jax.numpy as jnp
    from brax import envs

    env = envs.get_environment(args.env, backend=args.backend)

    def score(state: Any, key: jax.Array) -> jax.Array:
        def step(carry: tuple, _: None) -> tuple[tuple, jax.Array]:
            world, going = carry
            seen = algorithm.normalize_obs(state.obs_rms_state, world.obs)
            mean = algorithm.actor.apply(state.actor_ts.params, seen, method="_action_dist").loc
            after = jax.vmap(env.step)(world, jnp.clip(mean, -1.0, 1.0))
            return (after, going * (1 - after.done)), (after.reward * going).mean()

        start = jax.vmap(env.reset)(jax.random.split(key, args.num_eval_envs))
        return jax.lax.scan(step, (start, jnp.ones(args.num_eval_envs)), None, length=args.window)[1].sum()

    return jax.jit(score)


def curve(args: argparse.Namespace) -> None:
    """Train once, and print an evaluation every `spacing` steps: steps, seconds since the start of the process, window return."""
    import jax

    algorithm = algorithm_of(args, args.steps)
    score = evaluation(args, algorithm)
    iterations = args.spacing // (args.num_envs * args.rollout_length)
    train = jax.jit(lambda state: jax.lax.fori_loop(0, iterations, lambda _, state: algorithm.train_iteration(state), state))
    state = algorithm.init_state(jax.random.key(args.seed))
    print(json.dumps({"settings": vars(args), "jax": jax.__version__}), flush=True)
    for done in range(0, args.steps + 1, args.spacing):
        state = train(state) if done else state
        value = float(score(state, jax.random.key(args.seed + 1_000_003)))
        print(json.dumps({"env_steps": done, "wall_s": round(time.perf_counter() - BEGIN, 2), "window_return": round(value, 2)}), flush=True)


def main() -> None:
    """Read what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ant")
    parser.add_argument("--backend", default="spring")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--rollout-length", type=int, default=32)
    parser.add_argument("--minibatches", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--steps", type=int, default=4_096_000)
    parser.add_argument("--spacing", type=int, default=409_600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-eval-envs", type=int, default=64)
    parser.add_argument("--window", type=int, default=1000)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    begin = time.perf_counter()
    importlib.import_module("rejax")

    imports_s = time.perf_counter() - begin
    if args.curve:
        curve(args)
    else:
        rate(args, imports_s)


if __name__ == "__main__":
    main()
