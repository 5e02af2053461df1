"""The fused program: one trace, no talk with the host, in place, and the same numbers however it is cut or spread."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import KINDS, arrays, assert_bit_equal, largest_difference, program, trained

from jaxrl_long import trainer
from jaxrl_long.algorithms.batches import values_after
from jaxrl_long.algorithms.protocol import Rollout
from jaxrl_long.envs.probes import BreakAt, CountEnv, HugeReward, RandomStart
from jaxrl_long.launch import init_state, make_chunk, read, state_shapes
from jaxrl_long.learning.moments import Count, Sum


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_of_four_updates_is_four_chunks_of_one(kind):
    plan = program(RandomStart(die_at=7), **KINDS[kind])
    chunk = make_chunk(plan)
    at_once, _, _ = chunk(init_state(plan, 0), jnp.int32(4))
    state = init_state(plan, 0)
    for _ in range(4):
        state, _, _ = chunk(state, jnp.int32(1))
    assert_bit_equal(at_once, state)
    # Every length ran in the one program that was traced.
    assert chunk._cache_size() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_update_is_traced_once_for_the_whole_chunk(kind, monkeypatch):
    plan, traces, original = program(CountEnv(), **KINDS[kind]), [], trainer.collect
    monkeypatch.setattr(trainer, "collect", lambda *arguments: traces.append(1) or original(*arguments))
    chunk = make_chunk(plan)
    state = init_state(plan, 0)
    traces.clear()
    for updates in (1, 2, 3):
        state, _, _ = chunk(state, jnp.int32(updates))
    assert len(traces) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_run_and_another_seed_another(kind):
    plan = program(RandomStart(), **KINDS[kind])
    assert_bit_equal(trained(plan, 2, seed=0)[0], trained(plan, 2, seed=0)[0])
    one, other = init_state(plan, 0), init_state(plan, 1)
    assert largest_difference(one.learner.params, other.learner.params) > 0.01
    assert largest_difference(one.env.obs, other.env.obs) > 0.01
    act = plan.algorithm.act
    choices = [act(one.learner, one.env.obs, (), one.env.age == 0, jax.random.split(state.key, 8)).choice for state in (one, other)]
    assert largest_difference(*choices) > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_the_ring_is_written_in_place(kind):
    def analysis(capacity):
        plan = program(CountEnv(), **{**KINDS[kind], "capacity": capacity})
        compiled = make_chunk(plan).lower(state_shapes(plan), jax.ShapeDtypeStruct((), jnp.int32)).compile()
        ring = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state_shapes(plan).replay))
        return compiled.memory_analysis(), ring

    (small, _), (large, ring_bytes) = analysis(40), analysis(4000)
    assert large.alias_size_in_bytes >= ring_bytes
    assert large.temp_size_in_bytes - small.temp_size_in_bytes < ring_bytes / 100


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_in_the_program_calls_the_host(kind):
    plan = program(CountEnv(), **KINDS[kind])
    text = make_chunk(plan).lower(state_shapes(plan), jax.ShapeDtypeStruct((), jnp.int32)).as_text()
    assert "callback" not in text.lower()


@pytest.mark.parametrize("kind", KINDS)
def test_reports_are_as_small_for_many_environments_as_for_few(kind):
    def report_bytes(num_envs):
        plan = program(CountEnv(), num_envs=num_envs, **KINDS[kind])
        report = jax.eval_shape(make_chunk(plan), state_shapes(plan), jax.ShapeDtypeStruct((), jnp.int32))[1]
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(report))

    assert report_bytes(8) == report_bytes(8192)


def test_the_totals_of_a_chunk_count_on_where_float32_stops():
    totals = {"terminated_count": Count.of(2**36), "reward_count": Sum(jnp.float32(2**36), jnp.float32(0)), "kl": Sum.zeros(())}
    for _ in range(3):
        totals = {"terminated_count": totals["terminated_count"].plus(jnp.int32(1)), "reward_count": totals["reward_count"].plus(jnp.float32(1)),
                  "kl": totals["kl"].plus(jnp.float32(0.5))}  # fmt: skip
    # 2**36 + 3 = 68719476739, where float32's neighbours are 4096 apart.
    assert read(totals, 3) == {"terminated_count": 68719476739, "reward_count": 68719476739.0, "kl": 0.5}
    assert np.float32(2**36) + np.float32(3) == 2**36


def test_an_update_counts_its_ends_in_integers():
    # 8 environments of 4 steps each; every third step is a death: 8 in the first rollout, 8 * 8 / 3 in two.
    _, numbers, _ = trained(program(CountEnv(die_at=3), num_envs=8, rollout_length=4), 2)
    assert numbers["terminated_count"] == 16
    assert isinstance(numbers["terminated_count"], int)
    assert numbers["finished_length_count"] == 48.0


def test_two_devices_learn_what_one_learns_when_minibatches_are_whole_batches():
    # With several minibatches each device shuffles its own samples, and the minibatches differ; their union does not.
    reports = [trained(program(RandomStart(die_at=5), devices=devices, minibatches=1, epochs=2), 3)[1] for devices in (1, 2)]
    for name, number in reports[0].items():
        assert reports[1][name] == pytest.approx(number, rel=1e-4, abs=1e-5), name


def test_starts_and_noise_are_distinct_and_do_not_depend_on_the_number_of_devices():
    plans = [program(RandomStart(), devices=devices, num_envs=64) for devices in (1, 2)]
    starts = [np.asarray(init_state(plan, 0).env.obs) for plan in plans]
    assert len(np.unique(starts[0])) == 64
    np.testing.assert_array_equal(starts[0], starts[1])
    # After one update the ring holds the first choices.
    choices = [np.asarray(trained(plan, 1)[0].replay.fields["choice"].row)[0, :, 0] for plan in plans]
    assert len(np.unique(choices[0])) == 64
    np.testing.assert_allclose(choices[0], choices[1], rtol=1e-5)


def test_blocks_change_no_environment():
    whole, blocked = (trained(program(RandomStart(die_at=5), block=block, num_envs=16, minibatches=1), 1)[0] for block in (16, 4))
    np.testing.assert_array_equal(whole.env.obs, blocked.env.obs)
    np.testing.assert_allclose(*(arrays(state.replay.fields["choice"])[0] for state in (whole, blocked)), rtol=1e-6)


@pytest.mark.parametrize("number_cut", [0, 3, 256])
def test_cut_steps_bootstrap_on_their_final_observations_however_many_end_together(number_cut):
    steps, number = 16, 256
    key = jax.random.key(0)
    final = jax.random.normal(key, (steps, number, 3))
    values = jax.random.normal(jax.random.fold_in(key, 1), (steps, number))
    cut = jnp.zeros((steps, number), bool).at[5, :number_cut].set(True)
    rollout = Rollout(final, values, values, values, cut & False, cut, jnp.zeros(cut.shape, jnp.int32), final, final[0], ())

    def critic(obs):
        return obs.sum(-1)

    got = values_after(critic, values, jnp.full((number,), 7.0), rollout)
    following = jnp.concatenate([values[1:], jnp.full((1, number), 7.0)])
    np.testing.assert_allclose(got, jnp.where(cut, critic(final), following), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_non_finite_environment_is_counted_once_recorded_and_kept_away_from_the_learner(kind):
    plan = program(BreakAt(age=6), num_envs=8, **KINDS[kind])
    chunk = make_chunk(plan)

    def start(cracked):
        state = init_state(plan, 0)
        return replace(state, env=replace(state.env, sim=state.env.sim.replace(cracked=jnp.zeros(8).at[3].set(cracked))))

    (clean, _, _), (broken, totals, fault) = chunk(start(0.0), jnp.int32(1)), chunk(start(1.0), jnp.int32(1))
    assert_bit_equal(clean.learner, broken.learner)
    assert read(totals, 1)["fault_count"] == 0
    clean, _, _ = chunk(clean, jnp.int32(1))
    broken, totals, fault = chunk(broken, jnp.int32(1))
    assert read(totals, 1)["fault_count"] == 1
    assert bool(fault.found[0])
    assert (int(fault.index[0]), int(fault.update[0]), int(fault.sim.t[0])) == (3, 1, 5)
    others = np.array([0, 1, 2, 4, 5, 6, 7])
    for one, other in zip(arrays(clean.env), arrays(broken.env), strict=True):
        np.testing.assert_array_equal(one[others], other[others])
    assert all(np.isfinite(leaf).all() for leaf in arrays(broken.learner.params))


def test_a_reward_of_1e30_leaves_parameters_finite_and_is_counted():
    state, report, _ = trained(program(HugeReward(age=3)), 4)
    assert all(np.isfinite(leaf).all() for leaf in arrays((state.learner.params, state.learner.optimizer, state.learner.scale)))
    assert report["skipped_count"] > 0
    assert all(np.isfinite(number) for number in report.values())


def test_a_linear_rate_ends_at_zero_and_depends_on_the_update_alone():
    plan = program(CountEnv(), learning_rate=1e-3, schedule="linear", total_updates=10)
    chunk = make_chunk(plan)
    state, _, _ = chunk(init_state(plan, 0), jnp.int32(5))
    state, totals, _ = chunk(state, jnp.int32(1))
    # Update 5 of 0..9: 1e-3 * (1 - 5/10).
    assert read(totals, 1)["learning_rate"] == pytest.approx(5e-4, rel=1e-6)


def test_the_first_minibatch_sees_the_policy_that_acted():
    plan = program(RandomStart(), minibatches=1, epochs=1, learning_rate=1e-9)
    _, report, _ = trained(plan, 3)
    assert abs(report["kl"]) < 1e-6
    assert report["clip_fraction"] == 0.0


@pytest.mark.parametrize("codec", ["float32", "bfloat16"])
def test_reusing_segments_learns_from_more_rows_and_ignores_empty_ones(codec):
    plan = program(RandomStart(die_at=9), reuse=2, capacity=12, codec=codec)
    state, report, _ = trained(plan, 5)
    assert int(state.replay.filled) == 12
    assert all(np.isfinite(number) for number in report.values())
    first, _, _ = trained(plan, 1)
    alone, _, _ = trained(program(RandomStart(die_at=9), reuse=0, minibatches=2), 1)
    assert largest_difference(first.learner.scale, alone.learner.scale) == 0


def test_the_pool_of_starts_is_renewed_a_part_at_a_time():
    plan = program(RandomStart(), pool=4, renew=1)
    before = np.asarray(init_state(plan, 0).starts.obs)
    after = np.asarray(trained(plan, 2)[0].starts.obs)
    assert (before[:2] != after[:2]).all()
    np.testing.assert_array_equal(before[2:], after[2:])
