"""Plans: the formula, the model of time, money, memory and coverage, on numbers known beforehand."""

import dataclasses
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_long.config import AlgorithmSettings, CheckpointSettings, EnvSettings, EvalSettings, RestartSettings, Settings
from jaxrl_long.planning import cache, cost, coverage, diagnosis, report
from jaxrl_long.planning.model import Measured, Spread, Times, evaluations, predict, saves
from jaxrl_long.planning.settings import PlanSettings
from jaxrl_long.runtime import memory


def spread(value: float, width: float = 0.0) -> Spread:
    return Spread(value, value * (1 - width), value * (1 + width))


def measured(**changes) -> Measured:
    """Round numbers: an update of 0.25 s, an evaluation of 2 s."""
    kept: dict[str, Any] = {
        "startup_s": 6.0,
        "compile_s": 5.0,
        "cold_compile_s": 20.0,
        "updates": 100,
        "devices": 2,
        "update": spread(0.25, 0.1),
        "learn_s": 0.1,
        "infer_s": 0.025,
        "evaluation": spread(2.0),
        "evaluation_compile_s": 3.0,
        "save": spread(0.1),
        "final_save_s": 0.5,
        "transfer_s": 0.0,
        "checkpoint_bytes": 2_000_000,
        "workspace_bytes": 30_000_000,
        "host_bytes": 900_000_000,
        "rates": {128: 30_000.0, 256: 32_768.0, 512: 40_000.0},
    }
    return Measured(**{**kept, **changes})


def test_the_wall_time_adds_up():
    # 100 updates of 0.25 s = 25 s; evaluated after 40, 80 and at the end: 3 x 2 s, and 3 s of compiling beside the program's 5 s;
    # a save with each evaluation, 0.1 s, and the last: 0.5 s.
    settings = Settings(steps=100 * 8192, eval=EvalSettings(every=40))
    assert evaluations(settings) == 3
    times = predict(settings, measured())
    assert (times.startup_s, times.compile_s, times.train_s, times.eval_s) == (6.0, 8.0, 25.0, 6.0)
    assert times.wall_s == pytest.approx(45.8)
    assert predict(settings, measured(), "high").train_s == pytest.approx(27.5 * 1.08)


def test_saves_are_counted_by_the_clock():
    # 10,000 updates of 0.25 s are 2,500 s: 8 intervals of 300 s, and one evaluation; 0.1 s each.
    settings = Settings(steps=10_000 * 8192, eval=EvalSettings(every=0))
    assert predict(settings, measured()).save_s == pytest.approx(9 * 0.1 + 0.5)
    # Looked at every 2 s at most, however short the interval.
    hasty = dataclasses.replace(settings, checkpoint=CheckpointSettings(every=1e-310))
    assert saves(hasty, 100.0) == 50 + 1


def test_a_run_of_another_length_is_compiled_anew():
    settings = Settings(steps=200 * 8192, eval=EvalSettings(every=0))
    # 20 s instead of 5 s, and the evaluation's 3 s.
    assert predict(settings, measured()).compile_s == 23.0


@pytest.mark.parametrize(("every", "number"), [(0, 1), (50, 2), (100, 1), (30, 4), (1000, 1)])
def test_an_evaluation_at_the_end_is_always_there(every, number):
    assert evaluations(Settings(steps=100 * 8192, eval=EvalSettings(every=every))) == number


def test_measurements_come_back_from_json():
    assert Measured.from_plain(measured().plain() | {"rates": {"256": 1.0}}) == measured(rates={256: 1.0})


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=9))
def test_a_spread_lies_within_its_values(values):
    found = Spread.of(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_how_much_of_the_horizon_is_lived():
    # 100e6 steps over 4096 environments: 24,414 each, 2.4 % of a million.
    seen = coverage.coverage(100_000_000, 4096, 1_000_000, 0, 40_960.0)
    assert seen.lived == 24_414
    assert round(seen.share, 3) == 0.024
    assert seen.episodes == 0
    # A million steps one after the other, each taking 4096 / 40,960 = 0.1 s.
    assert seen.floor_s == 100_000
    said = coverage.advice(seen, 4096, RestartSettings(every=0))
    assert "2.4%" in said[0]
    assert "steps=4096000000, or num_envs=99 " in said[-1]
    # 106,496 steps are no million in one environment either.
    assert "num_envs=" not in coverage.advice(coverage.coverage(106_496, 256, 1_000_000, 0, 1.0), 256, RestartSettings(every=0))[-1]
    # 99 environments live 100e6 / 99 = 1,010,101 steps.
    assert coverage.coverage(100_000_000, 99, 1_000_000, 0, 1.0).episodes == 99


def test_restarts_hide_old_ages_and_are_named():
    seen = coverage.coverage(100_000_000, 100, 1_000_000, 1000, 40_960.0)
    assert seen.oldest == 1000
    assert any("restart.every=0" in line for line in coverage.advice(seen, 100, RestartSettings(every=1000)))
    # What goes on from an archive is not cut there for good.
    assert RestartSettings(every=1000, source="archive").oldest == 0
    assert not any("restart.every" in line for line in coverage.advice(seen, 100, RestartSettings(every=1000, source="archive")))


def test_a_run_that_sees_its_horizon_needs_no_advice():
    assert coverage.advice(coverage.coverage(10_000_000, 100, 1000, 1000, 1.0), 100, RestartSettings()) == []


def test_shares_of_the_wall_time_add_up_and_name_the_bottleneck():
    times = Times(0.0, 8.0, 25.0, 6.0, 0.5)
    parts = diagnosis.shares(times, measured())
    assert sum(parts.values()) == pytest.approx(1.0)
    # Learning is 0.1 / 0.25 of 25 s, inference a tenth, simulation the rest.
    assert parts["learning"] == pytest.approx(10 / 39.5)
    assert parts["simulation"] == pytest.approx(12.5 / 39.5)
    assert diagnosis.bottleneck(parts) == "simulation"
    assert diagnosis.bottleneck(diagnosis.shares(times, measured(learn_s=0.2))) == "learning"
    assert diagnosis.bottleneck(diagnosis.shares(Times(60.0, 50.0, 25.0, 9.0, 0.5), measured())) == "compilation"


def test_remedies_say_by_how_much_the_whole_run_would_be_faster():
    settings, times = Settings(), Times(0.0, 0.0, 100.0, 0.0, 0.0)
    found = {remedy.setting: remedy.factor for remedy in diagnosis.remedies(settings, measured(), times)}
    # 40,000 against 32,768 steps/s.
    assert found["num_envs=512"] == pytest.approx(40_000 / 32_768)
    # Learning is 40 %: half of its epochs saves 20 %.
    assert found["algorithm.epochs=2"] == pytest.approx(1 / 0.8)
    # Simulation and inference are 60 %: halved, 30 % is saved.
    assert found["twice the devices"] == pytest.approx(1 / 0.7)
    slow = {remedy.setting: remedy.factor for remedy in diagnosis.remedies(settings, measured(), Times(0.0, 0.0, 80.0, 20.0, 0.0))}
    # 489 updates: 5 evaluations instead of 10, 2 s each.
    assert slow["eval.every=100"] == pytest.approx(100 / 90)


def test_evaluations_that_would_stay_are_no_remedy():
    # 40 updates: evaluated once at the end with eval.every=50, and with 100.
    settings = Settings(steps=40 * 8192)
    found = diagnosis.remedies(settings, measured(), Times(0.0, 0.0, 10.0, 90.0, 0.0))
    assert not any(remedy.setting.startswith("eval.every") for remedy in found)


def test_a_single_epoch_can_not_be_halved():
    settings = Settings(algorithm=AlgorithmSettings(epochs=1))
    soft = Settings(algorithm=AlgorithmSettings(name="sac", update_ratio=0.5))
    less = {remedy.setting: remedy.factor for remedy in diagnosis.remedies(soft, measured(), Times(0.0, 0.0, 100.0, 0.0, 0.0))}
    # Learning is 40 % of it all.
    assert less["algorithm.update_ratio=0.25"] == pytest.approx(1 / 0.8)
    assert not any("epochs" in remedy.setting for remedy in diagnosis.remedies(settings, measured(), Times(0.0, 0.0, 100.0, 0.0, 0.0)))


def test_a_ring_that_fills_the_memory_is_told_to_be_packed():
    need = memory.Need(10, 10, 900)
    assert "bfloat16" in diagnosis.memory_advice(Settings(), need, 0, 1100)[0]
    assert diagnosis.memory_advice(Settings(), need, 0, 10_000) == []
    assert "Memory-bound" in diagnosis.memory_advice(Settings(), need, 9000, 10_000)[0]


def known(**changes) -> cache.Known:
    return cache.Known(measured(**changes), memory.Need(1_000_000, 4_000_000, 5_000_000), 20_000_000_000, 1_780_000_000.0)


def test_a_plan_has_all_that_programs_read(tmp_path):
    settings = PlanSettings(horizon=1_000_000, steps=100 * 8192, price=3.6)
    settings.target.hours, settings.target.cost = 0.001, 1000.0
    plan = report.make(settings, known(), cost.read_prices(), cached=True)
    kinds = {
        **dict.fromkeys(("wall_s", "wall_low_s", "wall_high_s", "steps_per_s", "cost_usd", "price_usd_per_hour", "rollout_s"), float),
        **dict.fromkeys(("device_bytes", "host_bytes", "disk_bytes", "ring_bytes", "env_steps", "updates", "horizon", "evaluations"), int),
        **dict.fromkeys(("finish", "bottleneck", "measured_at", "device", "price_source"), str),
        **dict.fromkeys(("times", "shares", "rates", "coverage", "guess"), dict),
        **dict.fromkeys(("remedies", "advice", "targets"), list),
        "cached": bool,
    }
    assert {name: type(plan[name]) for name in kinds} == kinds
    # 3.6 USD/h are 0.001 USD a second.
    assert plan["cost_usd"] == pytest.approx(plan["wall_s"] / 1000)
    # 8192 steps in 0.25 s.
    assert plan["steps_per_s"] == 32_768
    assert plan["rollout_s"] == 0.25
    assert plan["guess"]["times_too_long"] == pytest.approx(20.0)
    assert len(plan["targets"]) == 2
    text = dict(report.lines(plan))
    assert "20.0 times" in text["the usual guess"]
    assert "lives 3,200 steps" in text["horizon"]


def test_a_device_without_a_price_is_said_to_have_none(monkeypatch, tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(yaml.safe_dump({"date": "2026-06", "devices": {"T4": {"usd_per_hour": 1}}}))
    plan = report.make(PlanSettings(), known(), cost.read_prices(path), cached=False)
    assert plan["cost_usd"] is None
    assert "price=" in dict(report.lines(plan))["cost"]


def test_measurements_are_kept_by_what_they_depend_on(tmp_path, monkeypatch):
    settings = Settings(compilation_cache=str(tmp_path / "compiled"))
    assert cache.load(settings) is None
    cache.store(settings, known())
    assert cache.load(settings) == known()
    # The number of steps changes the plan, not the measurement; the networks change the measurement.
    assert cache.load(dataclasses.replace(settings, steps=1)) == known()
    assert cache.load(dataclasses.replace(settings, algorithm=AlgorithmSettings(epochs=5))) is None
    world = dataclasses.replace(settings, env=EnvSettings("my_world:World"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_world.py").write_text("class World: ...")
    cache.store(world, known())
    assert cache.load(world) == known()
    (tmp_path / "my_world.py").write_text("class World: pass  # another one")
    assert cache.load(world) is None
    path = cache.file(settings)
    assert path is not None
    path.write_text("{}")
    assert cache.load(settings) is None
    path.write_text("not json")
    assert cache.load(settings) is None


def test_without_a_cache_nothing_is_kept():
    settings = Settings(compilation_cache="none")
    cache.store(settings, known())
    assert cache.file(settings) is None
    assert cache.load(settings) is None


@pytest.mark.parametrize(("seconds", "text"), [(34.4, "34 s"), (234, "3.9 min"), (100_000, "27.8 h"), (1_000_000, "11.6 d")])
def test_durations_are_for_people(seconds, text):
    assert report.duration(seconds) == text


def test_train_says_what_was_planned_and_what_came_of_it():
    settings = Settings(steps=1000 * 8192, eval=EvalSettings(every=0))
    # 1000 x 0.25 + 2 + 6 + 20 + 3 + 0.6 = 281.6 s
    [line] = report.announced(settings, known())
    assert line.startswith("plan: 4.7 min (")
    # 1000 x 8192 / 256 = 32,000 steps of a million, cut every 1000.
    note, line = report.announced(Settings(steps=1000 * 8192, horizon=1_000_000), None)
    assert "ages up to 1,000 of 1,000,000 steps" in note
    assert "follows the first report" in line
    assert report.compared(200.0, 210.0) == "planned 3.3 min, took 3.5 min (+5%)"
