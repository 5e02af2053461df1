"""Fields of a settings tree: default, limits and documentation in one place, and trees to and from plain data.

A tree is nested dataclasses; *plain* data is what YAML holds: mappings, lists, text, numbers, booleans, null.
"""

import ast
import difflib
import functools
import inspect
import itertools
import math
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from typing import Any, TypeVar

Tree = TypeVar("Tree")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of each unit of time."""
USER_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""A class of the user's own, `package.module:Class`."""


class ConfigError(Exception):
    """Settings that don't fit: every problem at once, each with the setting, its value, the rule and a value that works."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        one = len(self.problems) == 1
        head = "1 setting doesn't fit." if one else f"{len(self.problems)} settings don't fit."
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


class RunError(Exception):
    """A run that can't go on, told in a sentence: what failed, and what is safe."""


def setting(
    default: Any = MISSING,
    *,
    factory: Any = MISSING,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    path: bool = False,
    main: bool = False,
    stored: bool = False,
    duration: bool = False,
    only: str = "",
    own: bool = False,
) -> Any:
    """Declare a field of a settings tree; its docstring stands under it.

    `low` and `high` are allowed, `above` is not. `choices`, `low`, `high` and `above` hold for each element of a list.
    `path`: text taken from the command line as it is, whatever characters it holds. `main`: shown first by `--help`.
    `stored`: a command that reads a finished run takes the run's own value instead of the default.
    `duration`: seconds, which may also be written with a unit: 90s, 30m, 8h, 2d. `only`: the one algorithm that reads it.
    `own`: beside the choices, the name of a class of the user's own.
    """
    limits = {"low": low, "high": high, "above": above, "choices": choices, "own": own}
    notes = limits | {"path": path, "main": main, "stored": stored, "duration": duration, "only": only}
    return field(default=default, default_factory=factory, metadata=notes)


@functools.cache
def docs(tree: type) -> dict[str, str]:
    """The docstring under each field of a settings class, its own or inherited, on one line; empty for a field without one."""
    found = {item.name: "" for item in fields(tree)}
    for owner in reversed([each for each in tree.__mro__ if is_dataclass(each)]):
        found |= _own_docs(owner)
    return found


def _own_docs(tree: type) -> dict[str, str]:
    body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(tree))).body[0]).body
    found = {}
    for declaration, doc in itertools.pairwise(body):
        if isinstance(declaration, ast.AnnAssign) and isinstance(declaration.target, ast.Name):
            text = doc.value.value if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) else ""
            found[declaration.target.id] = " ".join(str(text).split())
    return found


def leaves(tree: type, prefix: str = "") -> Iterator[tuple[str, type, Any]]:
    """Dotted name, owning class and dataclass field of every setting of a tree."""
    hints = typing.get_type_hints(tree)
    for item in fields(tree):
        if is_dataclass(hints[item.name]):
            yield from leaves(hints[item.name], f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, tree, item


def closest(name: str, known: Iterable[str]) -> str:
    """The most similar known names as the end of an error message, or all of them when none is similar.

    >>> closest("algoritm.minibatches", ["algorithm.minibatches", "seed"])
    'Closest: algorithm.minibatches.'
    """
    known = sorted(known, key=lambda full: (full.count("."), full))
    # The last part counts first: `minibatches` and `algoritm.minibatches` both mean `algorithm.minibatches`.
    last, ends = name.rsplit(".", 1)[-1], sorted({full.rsplit(".", 1)[-1] for full in known})
    alike = [last] if last in ends else difflib.get_close_matches(last, ends, n=2, cutoff=0.7)
    near = [full for end in alike for full in known if full.rsplit(".", 1)[-1] == end] or difflib.get_close_matches(name, known, n=3)
    if near:
        return f"Closest: {' or '.join(near[:3])}."
    return f"Known: {', '.join(known)}." if len(known) <= 24 else "See --help."


def show(value: Any) -> str:
    """A value as one would type it, shortened.

    >>> [show(value) for value in (None, True, 5e6, [64, 64])]
    ['null', 'true', '5000000', '[64,64]']
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return shorten(f"[{','.join(show(item) for item in value)}]")
    return shorten(f"{value:.15g}" if isinstance(value, float) else str(value))


def shorten(text: str, most: int = 80) -> str:
    """Text cut to so many characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


def masked(text: str) -> str:
    """Text without the passwords of the addresses in it: postgresql://user:***@host/name."""
    # To the last @ of the line: a password may hold one, or a space, though these should be written %40 and %20.
    text = re.sub(r"(\w://[^\s:/?#@]*:).+@", r"\1***@", text)
    return re.sub(r"([?&]\w*password=)[^&\s]+", r"\1***", text, flags=re.IGNORECASE)


def to_plain(tree: Any) -> Any:
    """A settings tree as plain data; `from_plain` gives an equal tree back."""
    if is_dataclass(tree):
        return {item.name: to_plain(getattr(tree, item.name)) for item in fields(tree)}
    if isinstance(tree, Mapping):
        return {key: to_plain(value) for key, value in tree.items()}
    return [to_plain(item) for item in tree] if isinstance(tree, list | tuple) else tree


def flat(tree: Any) -> dict[str, Any]:
    """Every setting of a tree by its dotted name."""
    return {name: functools.reduce(getattr, name.split("."), tree) for name, _, _ in leaves(type(tree))}


def from_plain(tree: type[Tree], data: Mapping[str, Any]) -> tuple[Tree, dict[str, str]]:
    """Build a settings tree from plain data: whole floats become ints, missing settings keep their defaults.

    Returns the tree and the problems by dotted name; a setting with a problem holds its default.
    """
    problems: dict[str, str] = {}
    return _build(tree, data, "", problems), problems


def _build(tree: type, data: Mapping[Any, Any], prefix: str, problems: dict[str, str]) -> Any:
    hints = typing.get_type_hints(tree)
    known = [prefix + name for name in hints]
    for name in data:
        if name not in hints:
            problems[f"{prefix}{name}"] = f"{prefix}{name}: no such setting. {closest(f'{prefix}{name}', known)}"
    values = {}
    for item in fields(tree):
        name, kind = prefix + item.name, hints[item.name]
        value = data.get(item.name, MISSING)
        if value is MISSING:
            continue
        if not is_dataclass(kind):
            _take(values, item, kind, value, name, problems)
        elif isinstance(value, Mapping):
            values[item.name] = _build(typing.cast(type, kind), value, f"{name}.", problems)
        else:
            inside = " or ".join(f"{name}.{part.name}=" for part in fields(kind)[:2])
            problems[name] = f"{name}={show(value)}: {name} holds several settings. Set one of them: {inside}"
    return tree(**values)


def _take(values: dict[str, Any], item: Any, kind: Any, value: Any, name: str, problems: dict[str, str]) -> None:
    try:
        value = _seconds(value) if item.metadata.get("duration") else value
        values[item.name] = _limited(_convert(value, kind), item.metadata)
    except ValueError as error:
        problems[name] = f"{name}={show(value)} {error}"


def _convert(value: Any, kind: Any) -> Any:
    """`value` as `kind`. Raises ValueError with the rest of a sentence that starts with the value."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _convert(value, inner[0])
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            raise ValueError(f"is not a list. Write it as [{show(value)}].")
        return origin(_convert(item, inner[0]) for item in value)
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ValueError("is not a mapping of names to values.")
        return dict(value)
    return {bool: _bool, int: _int, float: _float, str: _str}[kind](value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false.")
    return value


def _int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _float(value, "is not a whole number.")
    if not number.is_integer():
        raise ValueError(f"is not a whole number. Nearest: {math.floor(number)} or {math.ceil(number)}.")
    return int(number)


def _float(value: Any, otherwise: str = "is not a number.") -> float:
    # Text too: YAML reads `1e6` as text.
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float | str) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(otherwise)
    return number


def _seconds(value: Any) -> float:
    """A duration in seconds; a unit may stand behind the number. Raises ValueError as `_convert`."""
    number, unit = (value[:-1], value[-1]) if isinstance(value, str) and value[-1:] in UNITS else (value, "s")
    return _float(number, "is no duration. Write it in seconds, or as 90s, 30m, 8h or 2d.") * UNITS[unit]


def _str(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("is not text.")
    return str(value)


def _limited(value: Any, notes: Mapping[str, Any]) -> Any:
    """`value` if it keeps its limits. Raises ValueError with the rest of a sentence that starts with the value."""
    if value is None:
        return value
    for item in value if isinstance(value, list | tuple) else [value]:
        if notes.get("choices") and item not in notes["choices"] and not (notes.get("own") and USER_CLASS.fullmatch(item)):
            raise ValueError(f"is not one of {', '.join(notes['choices'])}.{_nearest_choice(item, notes['choices'])}")
        if notes.get("path") and item == "":
            raise ValueError("is empty.")
        if notes.get("low") is not None and item < notes["low"]:
            raise ValueError(f"is below {show(notes['low'])}. Nearest: {show(notes['low'])}.")
        if notes.get("above") is not None and item <= notes["above"]:
            raise ValueError(f"is not above {show(notes['above'])}.")
        if notes.get("high") is not None and item > notes["high"]:
            raise ValueError(f"is above {show(notes['high'])}. Nearest: {show(notes['high'])}.")
    return value


def _nearest_choice(value: Any, choices: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(value), choices, n=1)
    return f" Closest: {near[0]}." if near else ""
