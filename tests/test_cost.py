"""The usual estimate, prices and targets, on numbers known beforehand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_long.fields import ConfigError
from jaxrl_long.planning import calculator, cost


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
