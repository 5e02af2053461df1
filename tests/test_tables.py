"""The README's tables: made from the rows, and from nothing else."""

from pathlib import Path

import pytest

from benchmarks import floating_origin, harness, tables


def learned(seed: int, window_return: float) -> harness.Row:
    """A row as `benchmarks/learning.py` records it."""
    asked = {"env": "ant", "seed": seed, "asked_steps": 4_000_000, "asked_horizon": 1_000_000, "settings": "", "kind": "cpu"}
    measured = {"steps": 4_005_888, "wall_s": 180.0, "window_return": window_return, "steps_between_failures": 51200.0}
    return {
        **asked,
        **measured,
        "steps_between_failures_at_least": None,
        "alive": 0.984375,
        "copies": 64,
        "endurance": 16000,
        "reward_per_step": 5.7,
        "first_reward_per_step": 6.0,
    }


def test_the_learning_tables_come_from_the_rows(tmp_path: Path) -> None:
    for seed, value in ((0, 5000.0), (1, 6000.0), (1, 7000.0)):
        harness.record("learning", learned(seed, value), results=tmp_path)
    harness.record("random_policy", {"env": "ant", "window_return": -310.0, "kind": "cpu"}, results=tmp_path)
    # Seed 1 was measured again: mean of 5000 and 7000, sample deviation 1414.
    assert "| ant | `horizon=1000000` | 2 | 6,000 ± 1,414 | 5,000 | -310 | 98% (98%) | 4.0M | 3.0 |" in tables.environments(tmp_path)
    # Examined once more, for longer: a row of the other table, and none less of the first.
    harness.record("learning", {**learned(1, 7000.0), "endurance": 1_000_000}, results=tmp_path)
    harness.record("learning", {**learned(1, 7000.0), "endurance": 100_000}, results=tmp_path)
    assert "| ant | `horizon=1000000` | 2 | 6,000" in tables.environments(tmp_path)
    # 5.7 / 6.0 = 95 %
    lines = tables.endurance(tmp_path).splitlines()[2:4]
    assert lines[0] == "| ant |  | 1 | 4,005,888 | 7,000 | 98% of 64 at 100,000 | 5.70 | 95% | 51,200 |"
    assert " at 1,000,000 " in lines[1]


def test_the_speed_table_divides_medians(tmp_path: Path) -> None:
    asked = {"env": "ant", "backend": "spring", "kind": "cpu"}
    for turn, (mine, ceiling) in enumerate([(20.0, 40.0), (30.0, 44.0), (33.0, 50.0)]):
        harness.record("train", {"measure": "share", "side": "ours", "turn": turn, **asked, "steps_per_s": mine * 1000}, results=tmp_path)
        harness.record("train", {"measure": "share", "side": "ceiling", "turn": turn, **asked, "steps_per_s": ceiling * 1000}, results=tmp_path)
    startup = {"first_report_s": 30.0, "brax_import_s": 4.0, "other_imports_s": 3.0}
    harness.record("train", {"measure": "startup", "side": "empty cache", "turn": 0, **asked, **startup}, results=tmp_path)
    text = tables.speed(tmp_path)
    # Medians 30k and 44k: 0.68.
    assert "| 30,000 steps/s | 44,000 steps/s | 0.68 | 3 / 3 |" in text
    assert "| process start to the first report, empty cache | 30.0 s | 7.0 s of it imports | – | 1 |" in text


def test_tables_are_put_between_their_markers_and_nothing_else_is_touched(tmp_path: Path) -> None:
    row = {"env": "ant", "backend": "spring", "offset": 300_000, "floating_rms": 3.3e-5, "plain_rms": 0.64, "kind": "cpu"}
    harness.record("floating_origin", row, results=tmp_path)
    text = "before\n<!-- table:floating_origin -->\nold\n<!-- /table:floating_origin -->\nafter\n"
    filled = tables.fill(text, tmp_path)
    assert "| ant | spring | 300 km | 3.3e-05 | 6.4e-01 |" in filled
    assert "old" not in filled
    assert filled.startswith("before\n")
    assert filled.endswith("\nafter\n")
    # Made from the same rows, they stay as they are: what --check relies on.
    assert tables.fill(filled, tmp_path) == filled


def test_a_marker_with_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no table is called 'sped'"):
        tables.fill("<!-- table:sped -->\n<!-- /table:sped -->\n", tmp_path)


@pytest.mark.parametrize("name", sorted(tables.TABLES))
def test_every_table_can_be_made_without_rows(name: str, tmp_path: Path) -> None:
    assert tables.TABLES[name](tmp_path).endswith("No rows yet.")


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_check_tells_by_its_exit_code_whether_the_documents_are_current(name: str, changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    for document in ("README.md", "docs/results.md"):
        (tmp_path / document).write_text("<!-- table:speed -->\n<!-- /table:speed -->\n")
    assert tables.main([]) == 0
    if changed:
        (tmp_path / name).write_text("<!-- table:speed -->\n| typed by hand |\n<!-- /table:speed -->\n")
    assert tables.main(["--check"]) == int(changed)


def test_options_are_ranked_by_how_long_they_last_and_compared_with_the_base(tmp_path: Path) -> None:
    asked = {"env": "ant", "asked_steps": 0, "endurance": 20_000, "steps": 4e6, "kind": "cpu"}
    for option, seeds in {"base": [(1000.0, 0.5), (3000.0, 0.75)], "rewind": [(None, 1.0), (None, 0.98)]}.items():
        for seed, (between, alive) in enumerate(seeds):
            found = {"steps_between_failures": between, "steps_between_failures_at_least": 40_000.0, "alive": alive}
            harness.record("endurance", {**asked, "option": option, "seed": seed, "window_return": 6000, **found}, results=tmp_path)
    for option, rate in {"base": 4e4, "rewind": 3.9e4}.items():
        harness.record("endurance_price", {"env": "ant", "option": option, "turn": 0, "steps_per_s": rate, "kind": "cpu"}, results=tmp_path)
    lines = tables.options(tmp_path).splitlines()[2:4]
    # 40,000 / 2,000 = 20
    assert lines[0] == "| ant | rewind | 20,000 | 2 | 99% (98%) | > 40,000 | > 20.0 | 6,000 (100%) | 98% |"
    assert lines[1] == "| ant | base | 20,000 | 2 | 62% (50%) | 2,000 | 1.0 | 6,000 (100%) | 100% |"


def test_an_option_is_compared_with_the_base_of_its_own_seeds(tmp_path: Path) -> None:
    asked = {"env": "ant", "asked_steps": 0, "endurance": 20_000, "steps": 4e6, "alive": 0.0, "kind": "cpu", "steps_between_failures_at_least": None}
    for option, seeds in {"base": (100.0, 200.0, 9000.0), "rewind": (1000.0, 2000.0)}.items():
        for seed, between in enumerate(seeds):
            harness.record(
                "endurance", {**asked, "option": option, "seed": seed, "window_return": between, "steps_between_failures": between}, results=tmp_path
            )
    found = {line.split(" | ")[1]: line.split(" | ")[5:8] for line in tables.options(tmp_path).splitlines()[2:4]}
    assert found["rewind"] == ["1,500", "10.0", "1,500 (1000%)"]


def test_a_median_that_is_the_bound_of_one_run_is_told_as_a_bound_and_nothing_is_a_multiple_of_one(tmp_path: Path) -> None:
    asked = {"env": "ant", "asked_steps": 0, "endurance": 20_000, "steps": 4e6, "window_return": 6000, "alive": 1.0, "kind": "cpu"}
    for option, seeds in {"base": (None, None, 50.0), "rewind": (None, 100_000.0, 30.0), "pushes": (20.0, None, 30.0)}.items():
        for seed, between in enumerate(seeds):
            found = {"steps_between_failures": between, "steps_between_failures_at_least": None if between else 40_000.0}
            harness.record("endurance", {**asked, "option": option, "seed": seed, **found}, results=tmp_path)
    found = {line.split(" | ")[1]: line.split(" | ")[5:7] for line in tables.options(tmp_path).splitlines()[2:5]}
    # Of 30, more than 40,000, and 100,000 the middle one may be up to 100,000; of 20, 30 and more than 40,000 it is 30.
    assert found == {"base": ["> 40,000", "–"], "rewind": ["> 40,000", "–"], "pushes": ["30", "–"]}


def test_the_rings_bytes_are_compared_with_an_item_buffers(tmp_path: Path) -> None:
    row = {"measure": "bytes", "side": "ours", "rows": 4096, "episode": 1000, "turn": 0, "codec": "int8", "bytes": 40.0, "item_bytes": 160, "kind": "cpu"}
    harness.record("replay", row, results=tmp_path)
    assert "| `int8` | 40.0 | 160 | 0.250 |" in tables.ring(tmp_path)


def test_the_rings_speed_is_compared_with_flashbaxs_and_with_that_of_a_small_one(tmp_path: Path) -> None:
    for size, mine, peer in ((1000, 100e-6, 150e-6), (1_000_000, 110e-6, 165e-6)):
        for side, seconds in (("ours", mine), ("flashbax", peer)):
            row = {"measure": "speed", "side": side, "turn": 0, "rows": size, "episode": 1000, "codec": "float32", "turn_s": seconds, "kind": "cpu"}
            harness.record("replay", row, results=tmp_path)
    row = {"measure": "hindsight", "side": "ours", "turn": 0, "rows": 1_000_000, "episode": 1000, "codec": "float32", "turn_s": 50e-6, "kind": "cpu"}
    harness.record("replay", row, results=tmp_path)
    harness.record("replay", row | {"episode": 1_000_000, "turn_s": 51e-6}, results=tmp_path)
    found = tables.ring_speed(tmp_path)
    assert "| add and draw, 1,000,000 rows | 110 µs | 165 µs | 1.50 | 1.10 | 1 |" in found
    assert "| hindsight, episodes of 1,000,000 steps | 51 µs | – | – | 1.02 | 1 |" in found


def test_an_archives_cost_is_a_share_of_training_without_it(tmp_path: Path) -> None:
    for side, rates, size in (("without", (1000.0, 1010.0, 990.0), 0.0), ("with", (980.0, 985.0, 970.0), 100.0)):
        for turn, rate in enumerate(rates):
            written = {"steps_per_s": rate, "bytes": size * 1e6, "bytes_per_step": size, "bytes_per_s": size * rate}
            key = {"measure": "training", "env": "ant", "side": side, "turn": turn, "steps": 2_000_000, "kind": "cpu"}
            harness.record("archive", key | written, results=tmp_path)
    assert "| training ant, archive | 980 steps/s | 98.0% | 0.1 MB/s | 100 | 3 |" in tables.archiving(tmp_path)
    row = {"measure": "formats", "env": None, "side": "lmdb", "turn": 0, "kind": "cpu", "write_mb_per_s": 80.0, "share": 0.5}
    harness.record("archive", row | {"column_steps_per_s": 9e5, "single_steps_per_s": 400.0}, results=tmp_path)
    assert "| LMDB | 80 MB/s | 50% | 900,000 steps/s | 400 steps/s | 1 |" in tables.formats(tmp_path)


def test_goals_that_are_reached_are_counted_over_seeds(tmp_path: Path) -> None:
    for settings, rates in {"algorithm=sac": (1.0, 0.9), "algorithm=sac replay.hindsight=0": (0.0, 0.1)}.items():
        for seed, rate in enumerate(rates):
            row = {**learned(seed, 1.0), "env": "bitflip", "settings": settings, "eval_success_rate": rate, "wall_s": 90.0}
            harness.record("learning", row, results=tmp_path)
    found = tables.goals(tmp_path)
    assert "| bitflip | `algorithm=sac` | 4,005,888 | 95% | 90% | 1.5 | 2 |" in found
    assert "| bitflip | `algorithm=sac replay.hindsight=0` | 4,005,888 | 5% | 0% | 1.5 | 2 |" in found


def test_soft_actor_critics_are_compared_where_both_were_measured(tmp_path: Path) -> None:
    for side, seconds, reached in (("ours", 50.0, -7.0), ("brax", 150.0, -8.0)):
        row = {"env": "reacher", "side": side, "seed": 0, "asked_steps": 300_000, "wall_s": seconds, "window_return": reached, "kind": "cpu"}
        harness.record("sac", row, results=tmp_path)
    harness.record("sac", row | {"env": "hopper"}, results=tmp_path)
    found = tables.critics(tmp_path)
    assert "| reacher | 300,000 | -7.0 | -8.0 | 50 s | 150 s | 3.0 | 1 / 1 |" in found
    assert "hopper" not in found


def test_a_floating_origin_is_the_default_just_where_the_rows_say_that_it_helps() -> None:
    rows = {(row["env"], row["backend"]): row for row in floating_origin.newest()}
    assert set(floating_origin.worlds()) <= set(rows)
    for row in rows.values():
        assert row["floating_rms"] < row["plain_rms"] / 5, row
