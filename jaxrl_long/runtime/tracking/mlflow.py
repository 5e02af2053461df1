"""MLflow: a database (SQLite, PostgreSQL) or a server, by its small client."""

import importlib.util
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl_long import __version__
from jaxrl_long.config import MlflowSettings
from jaxrl_long.fields import masked
from jaxrl_long.runtime.tracking.protocol import Row

IDENTITY = "jaxrl_long.id"
"""Tag by which a later process finds the run: MLflow itself chooses the ids of runs."""
LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1", "PGCONNECT_TIMEOUT": "10"}
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_LOGGING_LEVEL": "CRITICAL"}
LONGEST = 6000
"""Characters of a parameter's value that MLflow takes; of a tag's it takes more."""
PARAMETERS, METRICS = 100, 1000
"""How many of them it takes at once."""


class MlflowTracker:
    """One run of MLflow. Slow to import and to start: use it behind `Background`."""

    def __init__(self, settings: MlflowSettings, say: Callable[[str], None]) -> None:
        """Keep the settings; nothing is imported before `start`."""
        self._settings, self._say = settings, say
        self._client: Any = None
        self._run = ""
        self._has: set[int] = set()
        """Steps that the run has."""
        self._waiting: list[tuple[Row, int, int]] = []
        """Rows that were not taken yet, with step and time in milliseconds."""

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None, past: Sequence[Row]) -> str:
        """Open the run, or go on with the one tagged `resume_id`."""
        uri = address(self._settings.uri, folder)
        _prepare()
        from mlflow.tracking import MlflowClient

        identity = resume_id or run_name
        self._client = client = MlflowClient(tracking_uri=uri)
        experiment = self._experiment(uri, folder)
        found = client.search_runs([experiment], f"tags.`{IDENTITY}` = '{identity}'", max_results=1)
        tags = {IDENTITY: identity, "jaxrl_long.version": __version__, "env": str(config["env"]["name"]), "algorithm": str(config["algorithm"]["name"])}
        run = found[0] if found else client.create_run(experiment, run_name=run_name, tags=tags)
        self._run = run.info.run_id
        if found:
            client.update_run(self._run, status="RUNNING")
            self._has = {metric.step for metric in client.get_metric_history(self._run, "env_steps")}
        self._describe(config, run.data.params)
        self._waiting = [(row, row["env_steps"], _now()) for row in past if row["env_steps"] not in self._has]
        self._say(f"mlflow: {_look(uri)}")
        self._flush()
        return identity

    def log(self, row: Row, step: int) -> None:
        """Hand over the numbers of a row, once; what was not taken is tried again with the next one."""
        if step not in self._has:
            self._waiting.append((row, step, _now()))
        self._flush()

    def finish(self, summary: dict[str, Any], files: Sequence[Path]) -> None:
        """Hand over what is left, how it ended, and the files; and close."""
        self._flush()
        for name in ("finished", "stopped_by"):
            if summary.get(name) is not None:
                self._client.set_tag(self._run, name, str(summary[name]))
        self._client.log_dict(self._run, summary, "summary.json")
        for path in files:
            self._client.log_artifact(self._run, str(path))
        self._client.set_terminated(self._run, "FINISHED" if summary.get("finished") else "KILLED")

    def abandon(self) -> None:
        """Nothing holds up the end of the process."""

    def _experiment(self, uri: str, folder: Path) -> str:
        name = self._settings.experiment
        if (known := self._client.get_experiment_by_name(name)) is not None:
            return known.experiment_id
        from mlflow.exceptions import MlflowException

        # A server has a place for files; without one they lie beside the runs, where the client alone would use the current folder.
        place = None if uri.startswith("http") else (folder.parent / "mlartifacts").as_uri()
        try:
            return self._client.create_experiment(name, artifact_location=place)
        except MlflowException:
            # Another run may have made it meanwhile.
            if (known := self._client.get_experiment_by_name(name)) is None:
                raise
            return known.experiment_id

    def _describe(self, config: dict[str, Any], known: Mapping[str, str]) -> None:
        """Write the settings down as parameters. Parameters never change: what a resumed run was asked to do otherwise becomes a tag."""
        from mlflow.entities import Param, RunTag

        asked = {name: _shortened(value) for name, value in _flat(config)}
        fresh = [Param(name, value) for name, value in asked.items() if name not in known]
        for first in range(0, len(fresh), PARAMETERS):
            self._client.log_batch(self._run, params=fresh[first : first + PARAMETERS])
        changed = [RunTag(f"resumed.{name}", value) for name, value in asked.items() if name in known and known[name] != value]
        if changed:
            self._client.log_batch(self._run, tags=changed[:PARAMETERS])

    def _flush(self) -> None:
        """Hand over the rows that wait, whole ones and as many at once as MLflow takes."""
        from mlflow.entities import Metric

        while self._waiting:
            batch: list[Any] = []
            taken = 0
            for row, step, when in self._waiting:
                numbers = [Metric(name, float(value), when, step) for name, value in row.items() if isinstance(value, int | float)]
                if batch and len(batch) + len(numbers) > METRICS:
                    break
                batch += numbers
                taken += 1
            self._client.log_batch(self._run, metrics=batch)
            self._has |= {step for _, step, _ in self._waiting[:taken]}
            del self._waiting[:taken]


def address(asked: str, folder: Path) -> str:
    """Where the runs are kept: as asked, as MLFLOW_TRACKING_URI says, or in a file beside the run's folder."""
    if asked != "auto":
        return asked
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.parent / 'mlflow.db'}"


def _look(uri: str) -> str:
    """How a person looks at the runs there."""
    if uri.startswith("http"):
        return masked(uri)
    whole = "" if importlib.util.find_spec("flask_cors") and importlib.util.find_spec("aiohttp") else " (its pages come with `pip install mlflow`)"
    return f"mlflow ui --backend-store-uri {masked(uri)}{whole}"


def _prepare() -> None:
    """Keep MLflow short of patience, silent and to itself, before its first import; what the user has set stays."""
    for name, value in (LIMITS | QUIET).items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", module=r"(mlflow|alembic|sqlalchemy)\b")
    # Where somebody has imported it before.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _shortened(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _now() -> int:
    return time.time_ns() // 1_000_000
