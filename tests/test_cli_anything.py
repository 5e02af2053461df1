"""Whatever is typed, it is understood or refused, never a crash."""

from contextlib import suppress

from commandline import EVALUATE, TRAIN, on_a_cpu_in_an_empty_folder, train
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jaxrl_long import cli
from jaxrl_long.cli.words import names
from jaxrl_long.fields import ConfigError

__all__ = ["on_a_cpu_in_an_empty_folder"]

ODD = ["", "true", "[]", "{}", "[1,2]", "[a", "{a:1}", "1,2", "a,b", "???", "${seed}", "${x}", "${env}", "choice(1)", "range(3)", "interval(0,1)", "'q'"]
any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
values = st.one_of(any_text, st.integers().map(str), st.floats().map(str), st.sampled_from(ODD), st.text("0123456789.,[]{}()'\"${}: e-+=\\", max_size=12))
keys = st.sampled_from([*names(TRAIN)[1:], "env", "algorithm", "replay", "env.options.x", "env.options.x.y", "no.such"])


def fuzz(examples):
    return hypothesis_settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(st.dictionaries(keys, values, min_size=1, max_size=3))
@fuzz(80)
def test_any_value_of_any_setting_gives_valid_settings_or_a_settings_error(assignments):
    with suppress(ConfigError):
        settings = train(*(f"{name}={text}" for name, text in assignments.items()))
        assert settings.total_steps >= settings.steps >= 1
        assert settings.num_envs % settings.devices == 0
        assert settings.samples_per_update % settings.algorithm.minibatches == 0


@given(st.lists(any_text, max_size=4))
@fuzz(100)
def test_any_words_are_understood_or_refused(words):
    assert cli.run(EVALUATE, words) in (0, 2)


@given(values, values)
@fuzz(100)
def test_any_list_of_values_is_counted_without_a_repetition_or_refused(seeds, groups):
    with suppress(ConfigError):
        runs = cli.sweep.combinations(TRAIN, {"seed": seeds, "wandb.group": groups})
        assert len({tuple(run.items()) for run in runs}) == len(runs) >= 1
