"""Classes of the user's own, named `package.module:Class` by a setting: found, imported and built. Knows no jax; what it imports may."""

import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxrl_long.fields import USER_CLASS, ConfigError, closest, show

WHERE = "Run from the folder that holds it, or install it."
HOMES: list[str] = []
"""Folders in which the processes stood that trained the runs that this process reads: their modules may lie there."""


def problem(setting: str, name: str) -> str | None:
    """Why `setting=name` can't be such a class; None if it may be one. Nothing is imported.

    >>> problem("env", "json:JSONDecoder") is None
    True
    >>> problem("env", "nowhere:World")
    'env=nowhere:World: no package nowhere can be imported. Run from the folder that holds it, or install it.'
    """
    if not USER_CLASS.fullmatch(name):
        return f"{setting}={name} is not of the form package.module:Class."
    package = re.split(r"[.:]", name)[0]
    _reach()
    try:
        found = importlib.util.find_spec(package) is not None
    except ValueError:  # A module without a spec, as __main__ can be, is imported already.
        found = True
    return None if found else f"{setting}={name}: no package {package} can be imported. {_similar(package)}{WHERE}"


def _similar(package: str) -> str:
    """What lies in these folders and is called almost the same."""
    here = {path.stem for folder in (Path.cwd(), *HOMES) if Path(folder).is_dir() for path in Path(folder).iterdir() if path.suffix == ".py" or path.is_dir()}
    near = difflib.get_close_matches(package, here, n=2, cutoff=0.7)
    return f"Closest: {' or '.join(near)}. " if near else ""


def _reach() -> None:
    """The current folder is looked into first, then those that a run comes from, after all that is installed."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    sys.path.extend(folder for folder in HOMES if folder not in sys.path)


def load(setting: str, name: str) -> Callable[..., Any]:
    """The class that `setting=name` means.

    Raises:
        ConfigError: no such module or class.
    """
    if not USER_CLASS.fullmatch(name):
        raise ConfigError([f"{setting}={name} is not of the form package.module:Class."])
    module_name, _, class_name = name.partition(":")
    module = _module(setting, name, module_name)
    constructor = getattr(module, class_name, None)
    if not callable(constructor):
        classes = [name for name, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
        known = closest(class_name, classes) if classes else "It holds no class."
        raise ConfigError([f"{setting}={name}: module {module_name} has no class {class_name}. {known}"])
    return constructor


def _module(setting: str, name: str, module_name: str) -> Any:
    """Import a user's module. An error inside of it is told as it is."""
    _reach()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError([f"{setting}={name}: module {module_name} needs {error.name}, which is not installed."]) from error
        raise ConfigError([f"{setting}={name}: no module {error.name} can be imported. {_similar(error.name)}{WHERE}"]) from None


def built(setting: str, name: str, options: Mapping[str, Any] | None, make: Callable[[], Any]) -> Any:
    """What `make` constructs; what it says about its arguments, of which `options` are the user's (None: there can be none), becomes a settings error."""
    try:
        return make()
    except (TypeError, ValueError, NotImplementedError) as error:
        given = "" if options is None else f" {setting}.options={show(dict(options))}" if options else f" without {setting}.options"
        raise ConfigError([f"{setting}={name} can't be built{given}: {error}"]) from error


def lacking(setting: str, name: str, thing: Any, kind: str, members: Iterable[str], where: str, methods: Iterable[str]) -> list[str]:
    """What `thing` lacks of the `members` that every `kind` has, and which `methods` are none; `where` tells of them."""
    members = tuple(members)
    missing = [member for member in members if not hasattr(thing, member)]
    problems = [f"{setting}={name} lacks {', '.join(missing)}. {kind} has {', '.join(members)} ({where})."] if missing else []
    return problems + [f"{setting}={name}: {method} is not a method." for method in methods if not callable(getattr(thing, method, len))]
