"""Every rule between settings, and the values that stand for `auto`. Knows no jax.

To add a rule: a function in the file of what it is about.
"""

from jaxrl_long.rules import learning, pictures, replay, run, tracking, world
from jaxrl_long.rules.base import CONFIGS, RULES, EnvFacts, broken, divisors, environments, nearest_divisors, nearest_multiples, resolve, rule

__all__ = [
    "CONFIGS",
    "RULES",
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
    "tracking",
    "world",
]
