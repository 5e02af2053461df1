"""Runs tracked in a real PostgreSQL server, started for the test. `make test-system` runs them."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_trackers import READ_MLFLOW, killed_beyond_its_checkpoint, reading, steps_and_rewards, training

pytestmark = pytest.mark.postgres

PASSWORD = "hunter2"
NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


def program(name: str) -> str:
    """Of the newest PostgreSQL: Debian keeps its server's programs beside the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4].split(".")[0]))
    return str(found[-1]) if found else shutil.which(name) or name


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Host and port of a server that asks for a password. It refuses to be root's."""
    place = Path(tempfile.mkdtemp(prefix="postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        as_user = NOBODY
        shutil.chown(place, "nobody", "nogroup")
    (secret := place.with_suffix(".secret")).write_text(PASSWORD)
    secret.chmod(0o644)
    port = free_port()

    def call(*words: str) -> None:
        # To a file: a server that was started keeps a pipe open.
        with (log := place.with_suffix(".log")).open("a") as output:
            done = subprocess.run([*as_user, *words], cwd="/", stdout=output, stderr=output, timeout=60, check=False)
        assert done.returncode == 0, log.read_text()

    data = str(place / "data")
    call(program("initdb"), "-D", data, "-U", "me", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync")
    call(program("pg_ctl"), "-D", data, "-w", "-o", f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off", "start")
    try:
        yield f"127.0.0.1:{port}"
    finally:
        call(program("pg_ctl"), "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(place)
        for path in (secret, place.with_suffix(".log")):
            path.unlink()


def newest_step(uri: str) -> int:
    import psycopg

    try:
        with psycopg.connect(uri) as database:
            return (database.execute("SELECT max(step) FROM metrics").fetchone() or [0])[0] or 0
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):  # They are being made.
        return 0


def test_a_killed_run_goes_on_in_postgresql_and_its_password_is_nowhere(server, tmp_path):
    uri, run = f"postgresql://me:{PASSWORD}@{server}/postgres", tmp_path / "runs" / "killed"
    words = ("tracker=mlflow", f"run_dir={run}", f"mlflow.uri={uri}")
    killed_beyond_its_checkpoint(training(tmp_path, *words, "steps=1e9"), run, lambda: newest_step(uri))
    steps = max(steps_and_rewards(run)) + 20 * 2048

    # The password was not kept: asked for, not guessed, and nothing has begun.
    refused = training(tmp_path, "tracker=mlflow", f"run={run}", f"steps={steps}")
    told, _ = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert f"mlflow.uri=postgresql://me:***@{server}/postgres: passwords are not kept with a run." in told

    resumed = training(tmp_path, *words, f"steps={steps}")
    said, _ = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, said
    assert f"mlflow ui --backend-store-uri postgresql+psycopg://me:***@{server}/postgres" in said

    (kept,) = reading(READ_MLFLOW, uri.replace("postgresql:", "postgresql+psycopg:"))
    assert [step for step, _ in kept["history"]["env_steps"]] == sorted(steps_and_rewards(run))
    assert kept["status"] == "FINISHED"
    assert kept["params"]["mlflow.uri"] == f"postgresql://me:***@{server}/postgres"
    assert kept["files"] == ["report.html", "summary.json"]
    assert PASSWORD not in said + told + json.dumps(kept)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()] == []


def test_a_wrong_password_is_told_and_shown_to_nobody(server, tmp_path):
    process = training(tmp_path, "tracker=mlflow", "steps=40960", f"run_dir={tmp_path / 'run'}", f"mlflow.uri=postgresql://me:hunter3@{server}/postgres")
    said, _ = process.communicate(timeout=150)
    assert process.returncode == 0, said
    assert "mlflow does not take it: OperationalError" in said
    assert "hunter3" not in said
