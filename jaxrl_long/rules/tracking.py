"""Rules of trackers: what they need is installed, and their addresses can be used and kept."""

import importlib.util
import re
from collections.abc import Iterator

from jaxrl_long.config import TRACKERS, Settings
from jaxrl_long.fields import masked
from jaxrl_long.named import problem
from jaxrl_long.rules.base import rule

NEEDS = {"wandb": ("wandb",), "mlflow": ("mlflow", "sqlalchemy", "alembic"), "tensorboard": ("tensorboardX",)}
"""Packages of each tracker."""
SCHEMES = ("sqlite", "postgresql", "http", "https")
SUCH_AS = "Such as sqlite:////home/me/mlflow.db, postgresql://me@host/name or http://host:5000."


@rule("tracker")
def trackers_can_be_found(settings: Settings) -> Iterator[str]:
    """A user's own are classes in packages that can be found (which are not imported here)."""
    yield from filter(None, (problem("tracker", name) for name in settings.tracker if name not in TRACKERS))


@rule("tracker", "mlflow.uri")
def trackers_are_installed(settings: Settings) -> Iterator[str]:
    """A tracker's packages can be imported."""
    for name in dict.fromkeys(settings.tracker):
        driver = ("psycopg",) if name == "mlflow" and settings.mlflow.uri.startswith("postgresql:") else ()
        missing = [package for package in NEEDS.get(name, ()) + driver if not _installed(package)]
        if missing:
            yield f"tracker={name} needs {' and '.join(missing)}, not installed here: pip install 'jaxrl_long[{name}]'."


def _installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # A folder of that name, such as ./mlflow, is no package.
    return spec is not None and spec.origin is not None


@rule("tracker", "mlflow.uri")
def database_can_be_reached_by_its_address(settings: Settings) -> Iterator[str]:
    """A known kind of address, with a password that can be told from the rest of it; passwords are never shown."""
    uri = settings.mlflow.uri
    if "mlflow" not in settings.tracker or uri == "auto":
        return
    shown, scheme = masked(uri), re.split(r"[+:]", uri, maxsplit=1)[0]
    if scheme not in SCHEMES or not re.match(r"[a-z0-9+]+://", uri):
        yield f"mlflow.uri={shown} is neither a database nor a server that is known here. {SUCH_AS}"
    elif scheme == "sqlite" and not re.match(r"sqlite:///.", uri):
        yield f"mlflow.uri={shown} names no file. {SUCH_AS}"
    elif ":***@" in uri:
        yield (
            f"mlflow.uri={shown}: passwords are not kept with a run. Write mlflow.uri= with the password again, or without it and have it in "
            "PGPASSWORD or ~/.pgpass, or put the whole into MLFLOW_TRACKING_URI with mlflow.uri=auto."
        )
    elif re.search(r"://[^:/?#@]*:[^@]*[/?#@][^@]*@", uri):
        yield f"mlflow.uri={shown}: a password's @ / ? # are written %40 %2F %3F %23, so that it can be told from the rest."
