"""Plans: the formula, the model of time, money, memory and coverage, on numbers known beforehand."""

import dataclasses
from typing import Any

import pytest
import yaml
from commandline import train
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_long import rules
from jaxrl_long.config import AlgorithmSettings, CheckpointSettings, EnvSettings, EvalSettings, ReplaySettings, RestartSettings, Settings
from jaxrl_long.fields import ConfigError, RunError
from jaxrl_long.planning import cache, calculator, cost, coverage, diagnosis, report, tune
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


def test_the_worked_example_of_the_usual_estimate():
    found = calculator.estimate(100e6, 100, 1000)
    assert found.env_steps / 1e9 == 0.1
    assert found.steps_per_s == 20_000
    # 100e6 / 20,000 / 3600
    assert round(found.hours, 2) == 1.39


def test_a_measured_rollout_goes_where_the_guess_was():
    # A tenth of the guess's 5 s: a tenth of its time.
    assert calculator.estimate(100e6, 100, 1000, 0.5).wall_s == pytest.approx(calculator.estimate(100e6, 100, 1000).wall_s / 10)


@given(st.floats(1e6, 1e9), st.integers(1, 10_000), st.integers(1, 100_000), st.floats(1e-3, 1e3))
def test_the_estimate_is_steps_over_throughput(steps, number, length, rollout_s):
    found = calculator.estimate(steps, number, length, rollout_s)
    assert found.wall_s * number * length == pytest.approx(steps * rollout_s)


@pytest.mark.parametrize("numbers", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, -1, 1), (1, 1, 1, 0)])
def test_the_estimate_refuses_what_is_not_above_zero(numbers):
    with pytest.raises(ValueError, match="must be above 0"):
        calculator.estimate(*numbers)


def test_a_billion_steps_cost_what_they_cost():
    # 1e9 / 10,000 = 100,000 s = 27.8 h
    assert calculator.estimate(1e9, 10_000, 1, 1.0).hours == pytest.approx(27.8, abs=0.03)
    # 1e9 / 100,000 = 2.8 h; on 100 cores at 0.10 USD: 2.78 h x 10 USD/h = 27.8 USD
    faster = calculator.estimate(1e9, 100_000, 1, 1.0)
    assert faster.hours == pytest.approx(2.8, abs=0.03)
    catalogue = {"date": "2026-06", "devices": {"cpu": {"usd_per_hour": 0.10, "per": "core"}}}
    price = cost.price(catalogue, "cpu", 100)
    assert price is not None
    assert cost.cost_usd(faster.wall_s, price.usd_per_hour) == pytest.approx(27.8, abs=0.03)


@pytest.mark.parametrize(
    ("device", "name"), [("NVIDIA H200", "H200"), ("Tesla T4", "T4"), ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA A10G", "A10G"), ("NVIDIA L4", "L4")]
)
def test_devices_are_found_in_the_catalogue_by_the_names_that_they_give_themselves(device, name):
    catalogue = cost.read_prices()
    price = cost.price(catalogue, device, 2)
    assert price is not None
    assert price.usd_per_hour == 2 * catalogue["devices"][name]["usd_per_hour"]
    assert name in price.source
    assert str(catalogue["date"]) in price.source


def test_names_of_a_catalogue_may_be_numbers_and_several_words():
    rows = {4090: {"usd_per_hour": 0.4}, "A100 80GB": {"usd_per_hour": 2}, "A100": {"usd_per_hour": 1}}
    for device, each in (("NVIDIA GeForce RTX 4090", 0.4), ("NVIDIA A100-SXM4-80GB", 2), ("NVIDIA A100-SXM4-40GB", 1)):
        price = cost.price({"devices": rows}, device, 1)
        assert price is not None
        assert price.usd_per_hour == each


def test_the_users_price_wins_and_an_unknown_device_has_none():
    catalogue = cost.read_prices()
    assert cost.price(catalogue, "NVIDIA H200", 8, 20.0) == cost.Price(20.0, "price=")
    assert cost.price(catalogue, "NVIDIA Nonesuch 9000", 1) is None


@pytest.mark.parametrize(
    "devices", ["", "7", "{", "{T4: {}}", "{T4: {usd_per_hour: many}}", "{T4: {usd_per_hour: -1}}", "{T4: {usd_per_hour: .nan}}", "{T4: {usd_per_hour: .inf}}"]
)
def test_a_catalogue_that_is_none_is_a_settings_error(devices, tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(f"devices: {devices}")
    with pytest.raises(ConfigError, match=r"prices="):
        cost.read_prices(path)


def test_every_price_of_the_catalogue_has_a_source_and_lies_within_its_range():
    for row in cost.read_prices()["devices"].values():
        assert row["source"]
        assert row["low"] <= row["usd_per_hour"] <= row["high"]


def test_a_target_in_hours_asks_for_a_rate_and_so_many_devices():
    # 36e6 steps in 1 h with 100 s of other things: 36e6 / 3500 s = 10,286 steps/s; 4 devices make 4,000: 10.3 of them.
    need = cost.for_hours(36e6, 1.0, 4000.0, 4, overhead_s=100.0)
    assert need.steps_per_s == pytest.approx(10_285.7, abs=0.1)
    assert need.devices == 11
    impossible = cost.for_hours(36e6, 0.01, 4000.0, 4, overhead_s=100.0)
    assert impossible.devices is None
    assert "alone take" in impossible.why_not


def test_a_target_in_dollars_is_not_met_by_more_of_the_same():
    # 10 USD at 2 USD/h are 5 h: 36e6 / 18,000 s = 2,000 steps/s, which there are.
    assert cost.for_cost(36e6, 10.0, 4000.0, 2.0, 1).devices == 1
    dear = cost.for_cost(36e6, 1.0, 4000.0, 2.0, 1)
    # 1 USD is half an hour: 20,000 steps/s for the price of 4,000.
    assert dear.steps_per_s == pytest.approx(20_000)
    assert dear.devices is None


def test_the_wall_time_adds_up():
    # 100 updates of 0.25 s = 25 s; evaluated after 40, 80 and at the end: 3 x 2 s, and 3 s of compiling beside the program's 5 s;
    # a save with each evaluation, 0.1 s, and the last: 0.5 s.
    settings = Settings(steps=100 * 8192, eval=EvalSettings(every=40))
    assert evaluations(settings) == 3
    times = predict(settings, measured())
    assert (times.startup_s, times.compile_s, times.train_s, times.eval_s) == (6.0, 8.0, 25.0, 6.0)
    assert times.wall_s == pytest.approx(45.8)
    assert predict(settings, measured(), "high").train_s == pytest.approx(27.5)


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


def test_a_run_that_sees_its_horizon_needs_no_advice():
    assert coverage.advice(coverage.coverage(10_000_000, 100, 1000, 1000, 1.0), 100, RestartSettings()) == []


def test_a_ring_that_does_not_fit_is_refused_with_its_size_and_what_would_fit():
    # 30e6 transitions of 1692 bytes: 50.76 GB, on a machine with 20 GB.
    settings = Settings(num_envs=1000, rollout_length=10, replay=ReplaySettings(capacity=30_000_000))
    need = memory.Need(1_000_000, 9_000_000, 30_000_000 * 1692)
    text = memory.refusal(settings, need, 20_000_000_000)
    assert text is not None
    assert "replay.capacity=30000000" in text
    assert "50.76 GB" in text
    # (0.9 * 20e9 - 10e6) / 1692 = 10,632,387, in whole rollouts of 10,000.
    assert "Nearest: replay.capacity=10630000." in text
    fitting = dataclasses.replace(need, ring=10_630_000 * 1692)
    assert memory.refusal(settings, fitting, 20_000_000_000) is None


def test_environments_that_do_not_fit_are_refused_with_the_number_that_would():
    settings = Settings(num_envs=1_000_000, devices=2)
    # 100 kB each: (0.9 * 10e9 - 0) / 100 kB = 90,000.
    text = memory.refusal(settings, memory.Need(0, 90_000_000_000, 10_000_000_000), 10_000_000_000)
    assert text is not None
    assert "Nearest: num_envs=90000." in text


def test_environments_whose_ring_is_fixed_are_told_to_let_go_of_it_and_keep_every_rule():
    # 10 kB each transition: one rollout of 1000 x 100 is 1 GB, the ring 10 GB, 500 MB are free.
    settings = Settings(num_envs=1000, rollout_length=100, replay=ReplaySettings(capacity=1_000_000), devices=2)
    text = memory.refusal(settings, memory.Need(0, 1_000_000, 10_000_000_000), 500_000_000)
    assert text is not None
    number = int(text.split("Nearest: num_envs=")[1].split()[0])
    assert "with replay.capacity=0" in text
    # 450 MB / (1 MB + 1 kB) = 449 environments at most.
    assert 400 < number <= 449
    assert rules.broken(Settings(num_envs=number, rollout_length=100, devices=2)) == []


def group(folder, limit: str, used: int, cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")


def test_a_container_allows_what_its_groups_allow_and_a_cache_of_files_is_no_use(tmp_path):
    group(tmp_path, "max", 10**12, 0)
    group(tmp_path / "job", "8000", 7995, 7000)
    group(tmp_path / "job" / "step", "20000", 100, 0)
    # 8000 - (7995 - 7000), and 20000 - 100.
    assert sorted(memory._group_rooms(tmp_path, "0::/job/step\n")) == [7005, 19900]
    assert list(memory._group_rooms(tmp_path, "0::/nowhere\n")) == []


def test_the_first_version_of_control_groups_is_read_too(tmp_path):
    folder = tmp_path / "memory" / "box"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("1000")
    (folder / "memory.usage_in_bytes").write_text("900")
    (folder / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 300\n")
    assert list(memory._group_rooms(tmp_path, "7:cpu,cpuacct:/box\n4:memory:/box\n")) == [400]


def test_ten_episodes_of_a_million_steps_at_a_kilobyte_are_ten_gigabytes():
    assert memory.transitions_for(10, 1_000_000, 1000) == (10_000_000, 10_000_000_000)
    assert memory.gigabytes(10_000_000_000) == "10.00 GB"
    assert memory.gigabytes(310e6) == "310.00 MB"


def test_this_machine_has_memory():
    assert 10**8 < memory.available_host_bytes() < 10**14


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


def test_a_search_goes_on_for_as_long_as_it_helps():
    # Faster with more environments up to 1024, and with half of the minibatches once; nothing else matters.
    def rate(settings: Settings) -> float | None:
        if settings.num_envs > 4096:
            return None
        return 100.0 * min(settings.num_envs, 1024) / 256 * (1.5 if settings.algorithm.minibatches == 8 else 1.0)

    said: list[str] = []
    found = tune.search(Settings(devices=1), rate, said.append)
    assert (found.settings.num_envs, found.settings.algorithm.minibatches, found.settings.rollout_length) == (1024, 8, 32)
    assert (found.before, found.rate) == (100.0, 600.0)
    assert any("num_envs=1024" in line for line in said)
    preset = yaml.safe_load(tune.preset(found))
    assert preset == {"num_envs": 1024, "rollout_length": 32, "block": 0, "algorithm": {"minibatches": 8}}


def test_noise_is_not_taken_for_speed():
    found = tune.search(Settings(devices=1), lambda settings: 100.0 + 2.0 * (settings.num_envs > 256), lambda _: None)
    assert found.settings == Settings(devices=1)


def test_a_search_that_can_not_begin_says_so():
    with pytest.raises(RunError, match="do not fit into memory"):
        tune.search(Settings(), lambda _: None, lambda _: None)


def test_a_preset_is_a_machine_that_train_takes_and_is_never_overwritten(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    path = tmp_path / "tuned.yaml"
    found = tune.Tuned(Settings(num_envs=512, rollout_length=16, block=32), 2.0, 1.0)
    tune.write_preset(found, str(path))
    settings = train(f"machine={path}", "devices=1")
    assert (settings.num_envs, settings.rollout_length, settings.block) == (512, 16, 32)
    with pytest.raises(ConfigError, match="exists already"):
        tune.check_preset(str(path))
    with pytest.raises(ConfigError, match="no YAML file"):
        tune.check_preset(str(tmp_path / "tuned"))
    with pytest.raises(ConfigError, match="no folder that can be written to"):
        tune.check_preset(str(tmp_path / "nowhere" / "tuned.yaml"))
    with pytest.raises(ConfigError, match="can't be written"):
        tune.check_preset("x" * 300 + ".yaml")
    with pytest.raises(ConfigError, match="exists already"):
        tune.write_preset(found, str(path))


def test_what_was_learnt_is_told_per_minute():
    assert tune.Learned(300.0, 90.0).per_minute == 200.0
