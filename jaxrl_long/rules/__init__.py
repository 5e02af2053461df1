"""Every rule between settings, and the values that stand for `auto`. Knows no jax.

To add a rule: a function in the file of what it is about.
"""

from jaxrl_long.rules import learning, pictures, replay, run, world
from jaxrl_long.rules.base import CONFIGS, RULES, USER_CLASS, EnvFacts, broken, divisors, environments, nearest_divisors, nearest_multiples, resolve, rule

__all__ = [
    "CONFIGS",
    "RULES",
    "USER_CLASS",
    "EnvFacts",
    "broken",
    "divisors",
    "environments",
    "learning",
    "nearest_divisors",
    "nearest_multiples",
    "pictures",
    "replay",
    "resolve",
    "rule",
    "run",
    "world",
]
