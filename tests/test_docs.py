"""What the documents say is what the program does: every metric has its place in docs/metrics.md, and nothing else has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from documents import DOCS, ROOT, blocks
from test_experiment import run, settings
from test_planning import known

from jaxrl_long import archive, cli, plan
from jaxrl_long.cli.words import read as words
from jaxrl_long.config import (
    AlgorithmSettings,
    ArchiveSettings,
    EnvSettings,
    EvalSettings,
    EvaluateSettings,
    GoalSettings,
    ReplaySettings,
    RestartSettings,
    Settings,
    StopSettings,
)
from jaxrl_long.planning import cost, report
from jaxrl_long.planning.settings import PlanSettings
from jaxrl_long.reporting import index
from jaxrl_long.reporting import report as page
from jaxrl_long.reporting.runs import read
from jaxrl_long.runtime import assessment
from jaxrl_long.runtime.disk import Reader
from jaxrl_long.runtime.tracking import read_rows

METRICS = DOCS / "metrics.md"
OPEN = ("rates", "alive_at", "reward_per_step_by_age", "fields")
"""Mappings whose keys are numbers or names of the run's own."""


def documented(*headings: str) -> list[str]:
    """Names in the first columns of the tables under these headings."""
    sections = re.split(r"^##+ (.*)\n", METRICS.read_text(), flags=re.MULTILINE)
    by_heading = dict(zip(sections[1::2], sections[2::2], strict=True))
    rows = [line.split("|")[1] for heading in headings for line in by_heading[heading].splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def assert_same(found: set[str], *headings: str) -> None:
    """Just these names are documented there, each once."""
    assert sorted(documented(*headings)) == sorted(found)


def names(result: dict[str, Any]) -> set[str]:
    """Names as the document writes them: `times.train_s` for what lies in a mapping."""
    inner = {f"{name}.{part}" for name, value in result.items() if isinstance(value, dict) and name not in OPEN for part in value}
    return inner | {name for name, value in result.items() if not isinstance(value, dict) or name in OPEN}


def ppo(folder: Path) -> Settings:
    """A run with goals that come nearer, environments that live on, episodes that are rewound, and an archive."""
    return settings(
        folder,
        updates=3,
        env=EnvSettings(name="point_maze"),
        horizon=8,
        goals=GoalSettings(curriculum=0.5),
        restart=RestartSettings(source="rewind", pool=4, renew=1),
        eval=EvalSettings(every=1, num_envs=4, window=6, lasting=True),
        archive=ArchiveSettings(enabled=True),
        stop=StopSettings(price=2.5),
    )


def sac(folder: Path) -> Settings:
    """A run that learns from the ring, with hindsight."""
    learner = AlgorithmSettings(name="sac", policy_layers=(8,), value_layers=(8,), batch=8, update_ratio=0.1)
    return settings(folder, updates=2, env=EnvSettings(name="bitflip"), horizon=8, algorithm=learner, replay=ReplaySettings(capacity=320, begin=16))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one of them examined."""
    place = tmp_path_factory.mktemp("runs")
    for name, asked in {"ppo": ppo(place / "ppo"), "sac": sac(place / "sac")}.items():
        assert "done" in run(asked), name
    return place


def test_every_column_of_metrics_jsonl_is_documented(folder):
    found = {name for path in folder.glob("*/metrics.jsonl") for row in read_rows(path) for name in row}
    assert_same(found, "Progress and time", "Score", "How long agents last", "Is it sound?", "Learning")


def test_the_summary_is_the_last_row_and_what_is_documented(folder):
    summary, last = json.loads((folder / "ppo" / "summary.json").read_text()), read_rows(folder / "ppo" / "metrics.jsonl")[-1]
    assert_same(summary.keys() - last.keys(), "summary.json")


def test_every_number_of_an_evaluation_is_documented(folder):
    asked = EvaluateSettings(run=str(folder / "ppo"), horizon=1000, num_envs=4, devices=1, env=EnvSettings(name="point_maze"))
    result = assessment.assess(asked, ppo(folder / "ppo"), say=lambda text: None)
    assert result is not None
    [line] = (folder / "ppo" / "endurance.jsonl").read_text().splitlines()
    assert_same(names(result) | names(json.loads(line)), "Results of evaluate")


def test_every_number_of_a_plan_is_documented():
    made = report.make(PlanSettings(price=3.6), known(), cost.read_prices(), cached=True)
    assert_same(names(made), "Plan")
    assert {name for remedy in made["remedies"] for name in remedy} == {"setting", "factor", "why"}


def test_what_the_calculator_prints_is_documented(capsys):
    assert plan.calculate(cli.prepare(plan.CALCULATOR, words(plan.CALCULATOR, ["json=true"]))) == 0
    [said] = re.findall(r"`plan calculator json=true` gives (.*)\.", METRICS.read_text())
    assert re.findall(r"`(\w+)`", said) == list(json.loads(capsys.readouterr().out))


def test_every_tile_of_a_report_is_documented(folder):
    tiles = [name for name, _ in page._numbers(read(folder / "ppo"))]
    assert documented("Report") == tiles


def test_every_column_of_the_table_of_runs_is_documented():
    assert_same({*index.COLUMNS}, "Table of runs")


def test_every_number_of_an_archive_is_documented(folder):
    assert_same(names(archive._info(Reader(folder / "ppo" / "archive"))), "Archive")


def test_links_between_documents_lead_somewhere():
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text()):
            path, _, anchor = target.partition("#")
            other = (document.parent / path).resolve() if path else document
            assert other.exists(), f"{document.name}: {target}"
            anchors = (
                [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)]
                if anchor
                else [""]
            )
            assert anchor in anchors, f"{document.name}: {target}"


def quoted() -> list[str]:
    """Lines that docs/troubleshooting.md says the program prints."""
    return [line for block in blocks(DOCS / "troubleshooting.md", "text") for line in block.splitlines() if line]


def test_every_message_that_is_quoted_is_in_the_source():
    source = "\n".join(path.read_text() for path in (ROOT / "jaxrl_long").rglob("*.py"))
    # Sentences are put together of parts, and long ones stand in several literals.
    joined = re.sub(r"[\"']\s*\n\s*f?[\"']", "", source)
    assert len(quoted()) >= 30
    for line in quoted():
        for piece in re.split(r"…|[.:,;)]+ |\.$", line):
            assert piece.strip(" .:,;()=") in joined, f"{line}\n{piece}"
