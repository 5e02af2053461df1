"""From assignments to a settings tree, through Hydra: dataclass defaults < groups < command line."""

import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from jaxrl_long import machine, rules
from jaxrl_long.cli.command import Command
from jaxrl_long.cli.words import names
from jaxrl_long.fields import USER_CLASS, ConfigError, closest, from_plain, leaves, shorten, to_plain

UNREADABLE = (HydraException, OmegaConfBaseException, ValueError, TypeError, OverflowError, RecursionError)
"""What Hydra and OmegaConf raise for values that they can't read."""

OWN: dict[str, Callable[[str], dict[str, Any]]] = {"algorithm": lambda name: {"algorithm.name": name}, "tracker": lambda name: {"tracker": [name]}}
"""Groups in which a class of the user's own may be chosen, and what its name sets; env has no files for most of its names anyway."""


@dataclass
class Plan:
    """What Hydra is asked to compose, and what is set beside it."""

    choices: dict[str, str | None] = field(default_factory=dict)
    """File chosen in each group; None: no file."""
    overrides: list[str] = field(default_factory=list)
    """`++key=value` for Hydra."""
    raw: dict[str, Any] = field(default_factory=dict)
    """Values that are set as they are, by dotted name."""
    problems: dict[str, str] = field(default_factory=dict)
    """What is wrong with an assignment, by dotted name."""


def groups(command: Command) -> list[str]:
    """The command's configuration groups, lowest precedence first."""
    if command.config is None:
        return []
    defaults = yaml.safe_load((rules.CONFIGS / f"{command.config}.yaml").read_text(encoding="utf-8"))["defaults"]
    return [name for entry in defaults if isinstance(entry, Mapping) for name in entry]


def options(group: str) -> list[str]:
    """The files of a group that travel with the package."""
    return sorted(path.stem for path in (rules.CONFIGS / group).glob("*.yaml"))


def make_settings(command: Command, assignments: Mapping[str, str], base: Any, *, fresh: bool = True) -> Any:
    """The settings tree that assignments give, with every rule checked and `auto` resolved.

    `base` holds the defaults. `fresh`: the groups that were not chosen apply with their defaults too; otherwise `base` is a
    stored run, which they already went into.

    Raises:
        ConfigError: all that is wrong, at once.
    """
    plan = make_plan(command, assignments, base, fresh=fresh)
    plain = _through_hydra(command.config if fresh and command.config else "settings", plan, to_plain(base))
    settings, problems = from_plain(command.settings, plain)
    # An assignment that can't be read keeps its default meanwhile; what follows from that default is no problem of the user's.
    found = {**plan.problems, **{name: text for name, text in problems.items() if name not in plan.problems}}
    # Where no run is made, its folder need not be one that can be written, and nothing is tracked.
    unread = [] if command.makes_runs else ["run_dir", "tracker"]
    every = [*found.values(), *rules.broken(settings, bad=[*found, *unread])]
    if every:
        raise ConfigError(every)
    return rules.resolve(settings)


def make_plan(command: Command, assignments: Mapping[str, str], base: Any, *, fresh: bool) -> Plan:
    """Sort assignments into choices of group files, overrides for Hydra, and values taken as they are."""
    plan, known = Plan(), groups(command)
    kinds = {name: typing.get_type_hints(owner)[item.name] for name, owner, item in leaves(command.settings)}
    paths = {name for name, _, item in leaves(command.settings) if item.metadata.get("path")}
    # `tracker=[wandb]` and `env={name: ant}` are values, not names of files.
    chosen = {name: text for name, text in assignments.items() if name in known and (name in paths or text[:1] not in ("[", "{"))}
    if fresh and known:
        # A bare `env.name=hopper` means hopper's own tuning, as `env=hopper` does.
        own = {
            group: assignments.get(f"{group}.name", getattr(base, group).name) for group in ("algorithm", "env") if group in known and group not in assignments
        }
        chosen = {"machine": "auto"} | own | chosen
    for group, text in chosen.items():
        _choose(plan, group, text, _tuning(chosen))
    for name, text in assignments.items():
        if name in chosen or name == "run":
            continue
        if name in paths:
            plan.raw[name] = text
        else:
            _assign(plan, command, name, text, kinds)
    plan.problems |= _unread(command, assignments, chosen.get("algorithm") or assignments.get("algorithm.name") or base.algorithm.name) if known else {}
    return plan


def _unread(command: Command, assignments: Mapping[str, str], algorithm: str) -> dict[str, str]:
    """Assignments of settings that only another algorithm reads."""
    readers = {name: item.metadata["only"] for name, _, item in leaves(command.settings) if item.metadata.get("only")}
    return {
        name: f"{name}={shorten(text)}: only algorithm={readers[name]} reads it, and this is algorithm={algorithm}. Leave it out."
        for name, text in assignments.items()
        if name in readers and not is_file(algorithm) and not USER_CLASS.fullmatch(algorithm) and readers[name] != algorithm
    }


def parse(name: str, text: str) -> Override:
    """An assignment as Hydra reads it. Raises one of UNREADABLE."""
    return OverridesParser.create().parse_override(f"{name}={text}")


def is_file(text: str) -> bool:
    """Whether the choice of a group is a YAML file of the user's own."""
    return text.endswith((".yaml", ".yml"))


def _tuning(chosen: Mapping[str, str]) -> str:
    """Folder of an algorithm's own tuned environments within the group: PPO's are its files, the others' are in a folder of their name."""
    algorithm = chosen.get("algorithm", "ppo")
    return "" if algorithm == "ppo" or is_file(algorithm) else f"{algorithm}/"


def _choose(plan: Plan, group: str, text: str, tuning: str) -> None:
    if group == "machine":
        text = machine.find_machine() if text == "auto" else text
        plan.raw["machine"] = text
    if is_file(text):
        _choose_own_file(plan, group, text)
    elif _is_sweep(group, text):
        plan.problems[group] = _needs_multirun(group, text)
    elif group == "env" and tuning:
        plan.choices["env"] = tuning + text if text in options(f"env/{tuning}") else None
    elif text in options(group):
        plan.choices[group] = text
    elif group in OWN and USER_CLASS.fullmatch(text):
        plan.choices[group] = None
        plan.raw |= OWN[group](text)
    elif group != "env":
        plan.problems[group] = f"{group}={text}: no such file in configs/{group}. {closest(text, options(group))}"
    else:
        plan.choices["env"] = None
    if group == "env" and not is_file(text):
        plan.raw["env.name"] = text


def _choose_own_file(plan: Plan, group: str, text: str) -> None:
    try:
        content = OmegaConf.load(text)
        if not OmegaConf.is_dict(content):
            raise ValueError("it holds no settings.")
    except FileNotFoundError:
        plan.problems[group] = f"{group}={text}: no such file."
    except (OSError, yaml.YAMLError, *UNREADABLE) as error:
        plan.problems[group] = f"{group}={text} can't be read: {_line(error)}"
    else:
        ConfigStore.instance().store(group=group, name="own_file", node=content, package="_global_", provider=text)
        plan.choices[group] = "own_file"


def _assign(plan: Plan, command: Command, name: str, text: str, kinds: Mapping[str, Any]) -> None:
    section = next((leaf for leaf in kinds if leaf == name or leaf.startswith(f"{name}.")), None)
    inside = any(typing.get_origin(kinds[leaf]) is dict and name.startswith(f"{leaf}.") for leaf in kinds)
    if section is None and not inside:
        plan.problems[name] = f"{name}={shorten(text)}: no such setting. {closest(name, names(command))}"
        return
    is_text = kinds.get(name) in (str, str | None)
    try:
        override = parse(name, text)
        sweep, value = override.is_sweep_override(), override.value()
    except UNREADABLE as error:
        sweep, value = False, text
        if not is_text:
            plan.problems[name] = f"{name}={shorten(text)} can't be read: {_line(error)}"
            return
    if sweep:
        plan.problems[name] = _needs_multirun(name, text)
    elif name in groups(command):
        # Hydra takes the name of a group for a choice of its files.
        whole = name in kinds or not isinstance(value, dict)
        plan.raw |= {name: value} if whole else {f"{name}.{key}": inner for key, inner in value.items()}
    elif is_text and "${" not in text:
        # Text stays what was typed: 007 is no number, and 1e3 is not 1000.0.
        plan.raw.pop(name, None)
        plan.raw[name] = value if value is None or isinstance(value, str) else text
    else:
        plan.raw.pop(name, None)
        plan.overrides.append(f"++{name}={text}")


def _is_sweep(name: str, text: str) -> bool:
    try:
        return parse(name, text).is_sweep_override()
    except UNREADABLE:
        return False


def _needs_multirun(name: str, text: str) -> str:
    return f"{name}={shorten(text)} lists several values. Add -m to run each of them, or write one value; a list is written [1,2]."


def _through_hydra(config: str, plan: Plan, base: dict[str, Any]) -> dict[str, Any]:
    store = ConfigStore.instance()
    store.store(name="settings", node=_escaped(base), provider="jaxrl_long")
    # Without a defaults list to change, the groups that were chosen are added to the stored settings.
    added, removed = ("+", []) if config == "settings" else ("", [f"~{group}" for group, choice in plan.choices.items() if choice is None])
    choices = [f"{added}{group}={choice}" for group, choice in plan.choices.items() if choice is not None] + removed
    try:
        with hydra.initialize_config_dir(str(rules.CONFIGS), version_base="1.3"):
            composed = hydra.compose(config, [*choices, *plan.overrides])
        plain = typing.cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True, throw_on_missing=True))
    except UNREADABLE as error:
        raise ConfigError([*plan.problems.values(), f"The settings can't be put together: {_line(error)}"]) from None
    finally:
        GlobalHydra.instance().clear()
    for name, value in plan.raw.items():
        *sections, last = name.split(".")
        inner = plain
        for section in sections:
            inner = inner.get(section) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[last] = value
    return plain


def _escaped(plain: Any) -> Any:
    """Stored values as they are: a `${` in them is text, not a reference to another setting."""
    if isinstance(plain, dict):
        return {key: _escaped(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_escaped(value) for value in plain]
    return re.sub(r"(\\*)\$\{", lambda match: f"{match[1] * 2}\\${{", plain) if isinstance(plain, str) else plain


def _line(error: BaseException) -> str:
    """An error's first lines as one."""
    text = str(error).split("\nSee https")[0].split("\n    full_key")[0]
    return shorten(" ".join(text.split())) or type(error).__name__
