"""Whether a world of the user's own keeps the contract (`simulator.py`). Its `reset` and `step` are traced once; nothing is computed."""

import linecache
import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_long.envs.simulator import Continuous, Discrete, SimStep, Simulator
from jaxrl_long.fields import shorten, show

PACKAGES = Path(jax.__file__).parent.parent
"""Where installed packages lie: what is below is not the user's code."""
UNTRACEABLE = (jax.errors.TracerBoolConversionError, jax.errors.TracerArrayConversionError, jax.errors.TracerIntegerConversionError)
UNTRACEABLE += (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError)
"""What jax raises where Python has to know a number that is not there yet."""


def misdeclared(simulator: Any) -> Iterator[str]:
    """What is wrong with the attributes that a world has, a sentence each, ready to follow `env=name: `."""
    sizes = getattr(simulator, "obs_size", 1)
    if not sizes or not all(_is_count(size) for size in (sizes.values() if isinstance(sizes, Mapping) else [sizes])):
        yield f"obs_size={show(sizes)} is not the number of features of an observation, such as 4, or of each entry of it."
    action = getattr(simulator, "action", Discrete(1))
    if not isinstance(action, Continuous | Discrete):
        yield f"action={show(action)} is neither Continuous(size) nor Discrete(count)."
    elif not _is_count(number := action.size if isinstance(action, Continuous) else action.count):
        yield f"action={action}: {show(number)} is not a number of at least 1."
    dt = getattr(simulator, "dt", 1.0)
    if isinstance(dt, bool) or not isinstance(dt, int | float) or not 0 < dt < math.inf:
        yield f"dt={show(dt)} is not a time in seconds above 0, such as 0.05."


def broken(simulator: Simulator) -> Iterator[str]:
    """What is wrong with what `reset` and `step` of a world give, likewise; its attributes are right."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    action = jax.ShapeDtypeStruct((simulator.action.size,), jnp.float32) if isinstance(simulator.action, Continuous) else jax.ShapeDtypeStruct((), jnp.int32)
    start, problem = _traced("reset(key)", simulator.reset, key)
    if problem or start is None:
        yield problem
        return
    wrong = [*_wrong(simulator, "reset", start)]
    after, problem = _traced("step(state, action, key)", simulator.step, start.state, action, key)
    if problem or after is None:
        yield from [*wrong, problem]
        return
    yield from [*wrong, *_wrong(simulator, "step", after), *_differing(start.state, after.state)]
    yield from _members(simulator, start.state)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _traced(what: str, function: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """The shapes of what a function gives, or None and why it gives none."""
    try:
        given = jax.eval_shape(function, *arguments)
    except Exception as error:
        return None, f"{what} {_failure(function, error)}"
    if not isinstance(given, SimStep):
        number = f" of {len(given)}" if isinstance(given, tuple | list) else ""
        return None, f"{what} gives a {type(given).__name__}{number}, not a SimStep(state, obs, reward, terminated)."
    return given, ""


def _failure(function: Callable[..., Any], error: Exception) -> str:
    """What an error in a user's function was, and in which of their lines."""
    home = getattr(getattr(function, "__code__", None), "co_filename", "")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == home or _is_users(frame.filename)]
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).strip() if frames else ""
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}: `{line}`" if frames else ""
    if isinstance(error, UNTRACEABLE):
        return f"needs the value of an array{where}. All copies are stepped by one program: choose with jnp.where or jax.lax.cond, compute with jnp."
    return f"raises {type(error).__name__}{where}: {shorten(' '.join(str(error).split()), most=160)}"


def _is_users(file: str) -> bool:
    path = Path(file)
    return path.is_file() and PACKAGES not in path.parents and Path(__file__).parent.parent not in path.parents


def _wrong(simulator: Simulator, which: str, given: SimStep) -> Iterator[str]:
    """What is wrong with the parts of a SimStep."""
    for name, kind, write in (("reward", jnp.floating, "float"), ("terminated", jnp.bool_, "bool")):
        leaf = getattr(given, name)
        if not hasattr(leaf, "shape"):
            yield f"{name} of {which} is {type(leaf).__name__}, not one {write}."
            continue
        if leaf.shape:
            yield f"{name} of {which} has shape {leaf.shape}: it is one number, of shape ()."
        if not jnp.issubdtype(leaf.dtype, kind):
            cure = "a comparison gives one, and so does jnp.bool_(False)" if kind is jnp.bool_ else "jnp.float32(...) makes one of it"
            yield f"{name} of {which} is {leaf.dtype}, not {write}: {cure}."
    yield from _wrong_obs(simulator.obs_size, which, given.obs)


def _wrong_obs(size: int | Mapping[str, int], which: str, obs: Any) -> Iterator[str]:
    many = isinstance(size, Mapping)
    sizes, entries = (size, obs) if many else ({"": size}, {"": obs})
    if many and (not isinstance(obs, Mapping) or set(obs) != set(sizes)):
        found = f"has the entries {', '.join(map(str, obs))}" if isinstance(obs, Mapping) else "is no mapping"
        yield f"obs of {which} {found}, but obs_size has the entries {', '.join(sizes)}."
        return
    for name, features in sizes.items():
        entry, what = entries[name], f"obs[{name!r}]" if name else "obs"
        if not hasattr(entry, "shape"):
            yield f"{what} of {which} is a {type(entry).__name__}, not an array [{features}]. jnp.stack or jnp.array makes one."
            continue
        if entry.shape != (features,):
            yield f"{what} of {which} has shape {entry.shape}, but obs_size={show(size)} means ({features},)."
        if not jnp.issubdtype(entry.dtype, jnp.floating):
            yield f"{what} of {which} is {entry.dtype}: networks read floats. {what}.astype(jnp.float32) makes them."


def _differing(before: Any, after: Any) -> Iterator[str]:
    """How the state after a step is no state to step from."""
    old, new = ({jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]} for tree in (before, after))
    if jax.tree.structure(before) != jax.tree.structure(after):
        only = [
            f"only {name} has {', '.join(f'state{path}' for path in found)}"
            for name, found in (("reset", old.keys() - new), ("step", new.keys() - old))
            if found
        ]
        yield f"state of reset and step are built differently{': ' + ', '.join(sorted(only)) if only else ''}."
        return
    for path, one in old.items():
        other = new[path]
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            yield f"state{path} is {one.dtype}{list(one.shape)} after reset and {other.dtype}{list(other.shape)} after step: it has to stay the same."


def _members(simulator: Simulator, state: Any) -> Iterator[str]:
    """What is wrong with what a world may have beside."""
    for name, shape, kind, write in (("success", (), jnp.bool_, "one bool"), ("position", (3,), jnp.floating, "three floats, in metres")):
        function = getattr(simulator, name, None)
        if function is None:
            continue
        try:
            given = jax.eval_shape(function, state)
        except Exception as error:
            yield f"{name}(state) {_failure(function, error)}"
            continue
        if getattr(given, "shape", None) != shape or not jnp.issubdtype(given.dtype, kind):
            found = f"{given.dtype}{list(given.shape)}" if hasattr(given, "shape") else type(given).__name__
            yield f"{name}(state) gives {found}, not {write}."
