from dataclasses import dataclass, field
from typing import Any

import pytest

from jaxrl_long.config import StopSettings
from jaxrl_long.fields import ConfigError, closest, docs, flat, from_plain, masked, setting, show, to_plain


@dataclass
class Inner:
    size: int = setting(3, low=1, high=10)
    """How large
    it is."""
    rate: float = setting(0.5, above=0)
    kind: str = setting("plain", choices=("plain", "fancy"))


@dataclass
class Outer:
    inner: Inner = field(default_factory=Inner)
    on: bool = False
    layers: tuple[int, ...] = setting((4, 4), low=1)
    words: list[str] = field(default_factory=list)
    name: str | None = None
    free: dict[str, Any] = field(default_factory=dict)


def problem(**plain):
    _, problems = from_plain(Outer, plain)
    (text,) = problems.values()
    return text


def test_one_problem_and_two_problems_are_told_in_good_english():
    assert str(ConfigError(["a=1 is odd."])) == "1 setting doesn't fit.\n  a=1 is odd."
    assert str(ConfigError(["a=1 is odd.", "b=3 too."])) == "2 settings don't fit.\n  a=1 is odd.\n  b=3 too."


def test_a_docstring_under_a_field_is_found_and_put_on_one_line():
    assert docs(Inner) == {"size": "How large it is.", "rate": "", "kind": ""}


def test_plain_data_gives_the_same_tree_back():
    tree = Outer(Inner(7, 0.25, "fancy"), on=True, layers=(1, 2), words=["a"], name="x", free={"a": {"b": [1, None]}})
    assert from_plain(Outer, to_plain(tree)) == (tree, {})


def test_missing_settings_keep_their_defaults():
    assert from_plain(Outer, {"inner": {"size": 4}}) == (Outer(Inner(4)), {})


def test_every_setting_is_found_by_its_dotted_name():
    assert flat(Outer())["inner.size"] == 3
    assert list(flat(Outer())) == ["inner.size", "inner.rate", "inner.kind", "on", "layers", "words", "name", "free"]


@pytest.mark.parametrize("value", [5, 5.0, "5", "5e0"])
def test_a_whole_number_is_an_int_however_it_is_written(value):
    tree, problems = from_plain(Outer, {"inner": {"size": value}})
    assert (tree.inner.size, type(tree.inner.size), problems) == (5, int, {})


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        ({"inner": {"size": 2.5}}, "inner.size=2.5 is not a whole number. Nearest: 2 or 3."),
        ({"inner": {"size": True}}, "inner.size=true is not a whole number."),
        ({"inner": {"size": float("nan")}}, "inner.size=nan is not a whole number."),
        ({"inner": {"size": "many"}}, "inner.size=many is not a whole number."),
        ({"inner": {"size": 0}}, "inner.size=0 is below 1. Nearest: 1."),
        ({"inner": {"size": 1e12}}, "inner.size=1000000000000 is above 10. Nearest: 10."),
        ({"inner": {"rate": 0}}, "inner.rate=0 is not above 0."),
        ({"inner": {"rate": float("inf")}}, "inner.rate=inf is not a number."),
        ({"inner": {"rate": None}}, "inner.rate=null is not a number."),
        ({"inner": {"kind": "fany"}}, "inner.kind=fany is not one of plain, fancy. Closest: fancy."),
        ({"inner": {"kind": [1]}}, "inner.kind=[1] is not text."),
        ({"inner": {"sise": 3}}, "inner.sise: no such setting. Closest: inner.size."),
        ({"inner": 3}, "inner=3: inner holds several settings. Set one of them: inner.size= or inner.rate="),
        ({"on": 1}, "on=1 is neither true nor false."),
        ({"layers": 64}, "layers=64 is not a list. Write it as [64]."),
        ({"layers": [64, 0]}, "layers=[64,0] is below 1. Nearest: 1."),
        ({"free": [1]}, "free=[1] is not a mapping of names to values."),
    ],
)
def test_a_wrong_value_is_told_with_its_name_and_what_would_work(plain, text):
    assert problem(**plain) == text


def test_all_wrong_values_are_told_at_once_and_keep_their_defaults():
    tree, problems = from_plain(Outer, {"inner": {"size": 0, "rate": -1}, "on": "x", "layers": [5]})
    assert sorted(problems) == ["inner.rate", "inner.size", "on"]
    assert tree == Outer(layers=(5,))


def test_the_last_part_of_a_dotted_name_is_enough_to_find_it():
    assert closest("minibatches", ["algorithm.minibatches", "steps"]) == "Closest: algorithm.minibatches."
    assert closest("stepz", ["algorithm.minibatches", "steps"]) == "Closest: steps."
    assert closest("q", ["b", "a"]) == "Known: a, b."


def test_values_are_shown_as_one_would_type_them():
    assert [show(value) for value in (None, True, 1e-5, (1, 2), "a b", "x" * 100)] == ["null", "true", "1e-05", "[1,2]", "a b", "x" * 77 + "..."]


@pytest.mark.parametrize(("written", "seconds"), [(90, 90.0), ("90", 90.0), ("1.5m", 90.0), ("8h", 28800.0), ("2d", 172800.0), ("1e2s", 100.0)])
def test_a_duration_may_be_written_with_a_unit(written, seconds):
    tree, problems = from_plain(StopSettings, {"after": written})
    assert (tree.after, problems) == (seconds, {})


@pytest.mark.parametrize("written", ["8x", "h", "", "nan", "infs", True, None, [1]])
def test_what_is_no_duration_is_refused_with_what_would_be(written):
    _, problems = from_plain(StopSettings, {"after": written})
    assert problems["after"].endswith("is no duration. Write it in seconds, or as 90s, 30m, 8h or 2d.")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:a@b/c d@host:5432/name", "postgresql://me:***@host:5432/name"),
        ("no answer from http://me:secret@host: 500", "no answer from http://me:***@host: 500"),
        ("postgresql://host/name?user=me&password=secret&sslmode=off", "postgresql://host/name?user=me&password=***&sslmode=off"),
        ("http://host:5000/path", "http://host:5000/path"),
        ("sqlite:////data/a.db", "sqlite:////data/a.db"),
        ("postgresql://me@host/name", "postgresql://me@host/name"),
    ],
)
def test_passwords_in_addresses_are_masked(text, shown):
    assert masked(text) == shown
