"""What fits into memory, and what is told where it does not."""

import dataclasses
from pathlib import Path

from jaxrl_long import rules
from jaxrl_long.config import ReplaySettings, Settings
from jaxrl_long.runtime import memory


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


def group(folder: Path, limit: str, used: int, cache: int) -> None:
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
