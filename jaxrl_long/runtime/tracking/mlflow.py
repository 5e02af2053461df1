"""MLflow: a database (SQLite, PostgreSQL) or a server, by its small client."""

import contextlib
import importlib.util
import logging
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from jaxrl_long import __version__
from jaxrl_long.config import MlflowSettings
from jaxrl_long.fields import masked
from jaxrl_long.runtime.tracking.background import reason
from jaxrl_long.runtime.tracking.protocol import Row

IDENTITY = "jaxrl_long.id"
"""Tag by which a later process finds the run: MLflow itself chooses the ids of runs."""
LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1", "PGCONNECT_TIMEOUT": "10"}
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_LOGGING_LEVEL": "CRITICAL", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
AGAIN_S = 30.0
"""Between two tries, where the database does not answer."""
LONGEST = 6000
"""Characters of a parameter's value that MLflow takes; of a tag's it takes more."""
PARAMETERS, METRICS = 100, 1000
"""How many of them it takes at once."""


class MlflowTracker:
    """One run of MLflow. Slow to import and to start: use it behind `Background`. Rows wait for a database that does not answer."""

    def __init__(self, settings: MlflowSettings, say: Callable[[str], None]) -> None:
        """Keep the settings; nothing is imported before `start`."""
        self._settings, self._say = settings, say
        self._open: Callable[[], None] = lambda: None
        """Opens the run; nothing to do once it is open."""
        self._client: Any = None
        self._uri = self._run = ""
        self._has: set[int] = set()
        """Steps that the run has."""
        self._waiting: list[tuple[Row, int, int]] = []
        """Rows that were not taken yet, with step and time in milliseconds."""
        self._again = 0.0
        """When it is tried again, of `time.monotonic`."""
        self._told = False

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None, past: Sequence[Row]) -> str:
        """Open the run, or go on with the one tagged `resume_id`."""
        self._uri, identity = address(self._settings.uri, folder), resume_id or run_name
        _prepare()
        self._waiting = [(row, row["env_steps"], _now()) for row in past]
        self._open = lambda: self._begin(run_name, identity, config, folder)
        self._try()
        return identity

    def log(self, row: Row, step: int) -> None:
        """Hand over the numbers of a row, once."""
        self._waiting.append((row, step, _now()))
        if time.monotonic() >= self._again:
            self._try()

    def show(self, video: Path, step: int) -> None:
        """Keep it as an artifact; its name says of which update it is."""
        del step
        self._try()
        self._client.log_artifact(self._run, str(video))

    def finish(self, summary: dict[str, Any], files: Sequence[Path]) -> None:
        """Hand over what is left, how it ended, and the files; and close."""
        self._try()
        if self._waiting or not self._run:
            raise RuntimeError(f"{len(self._waiting)} rows were not taken")
        for name in ("finished", "stopped_by"):
            if summary.get(name) is not None:
                self._client.set_tag(self._run, name, str(summary[name]))
        self._client.log_dict(self._run, summary, "summary.json")
        for path in files:
            self._client.log_artifact(self._run, str(path))
        self._client.set_terminated(self._run, "FINISHED" if summary.get("finished") else "KILLED")

    def abandon(self) -> None:
        """Nothing holds up the end of the process."""

    def _try(self) -> None:
        """Hand over what waits; where that fails, say so the first time and try again after a while."""
        try:
            self._open()
            self._flush()
        # Whatever a database, a server or a library between raises, its rows are kept.
        except Exception as error:
            self._again = time.monotonic() + AGAIN_S
            if not self._told:
                self._say(f"mlflow does not take it: {self._reason(error)}. It is tried again; metrics.jsonl has everything.")
            self._told = True

    def _reason(self, error: Exception) -> str:
        """What went wrong, also without a password that stands there by itself."""
        text = reason(error)
        with contextlib.suppress(ValueError):
            for secret in {urlsplit(self._uri).password or "", unquote(urlsplit(self._uri).password or "")} - {""}:
                text = text.replace(secret, "***")
        return text

    def _begin(self, run_name: str, identity: str, config: dict[str, Any], folder: Path) -> None:
        from mlflow.tracking import MlflowClient

        if not self._uri.startswith(("http", "sqlite")):
            _knock(self._uri)
        self._client = client = MlflowClient(tracking_uri=self._uri)
        experiment = self._experiment(folder)
        found = client.search_runs([experiment], f"tags.`{IDENTITY}` = '{identity}'", max_results=1)
        tags = {IDENTITY: identity, "jaxrl_long.version": __version__, "env": str(config["env"]["name"]), "algorithm": str(config["algorithm"]["name"])}
        run = found[0] if found else client.create_run(experiment, run_name=run_name, tags=tags)
        self._run = run.info.run_id
        if found:
            client.update_run(self._run, status="RUNNING")
            self._has = {metric.step for metric in client.get_metric_history(self._run, "env_steps")}
        self._describe(config, run.data.params)
        self._say(f"mlflow: {_look(self._uri)}")
        self._open = lambda: None

    def _experiment(self, folder: Path) -> str:
        name = self._settings.experiment
        if (known := self._client.get_experiment_by_name(name)) is not None:
            return known.experiment_id
        from mlflow.exceptions import MlflowException

        # A server has a place for files; without one they lie beside the runs, where the client alone would use the current folder.
        place = None if self._uri.startswith("http") else (folder.parent / "mlartifacts").as_uri()
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

        self._waiting = [entry for entry in self._waiting if entry[1] not in self._has]
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
    uri = asked if asked != "auto" else os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.parent / 'mlflow.db'}"
    # SQLAlchemy's versions differ in the driver that they take by themselves.
    return re.sub(r"^postgresql:", "postgresql+psycopg:", uri)


def _look(uri: str) -> str:
    """How a person looks at the runs there."""
    if uri.startswith("http"):
        return masked(uri)
    whole = "" if importlib.util.find_spec("flask_cors") and importlib.util.find_spec("aiohttp") else " (its pages come with `pip install mlflow`)"
    return f"mlflow ui --backend-store-uri {masked(uri)}{whole}"


def _knock(uri: str) -> None:
    """Find out at once whether a database answers: MLflow itself tries for minutes."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    create_engine(uri, poolclass=NullPool).connect().close()


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
