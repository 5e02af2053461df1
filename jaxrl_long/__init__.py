"""Training reinforcement-learning agents that last: episodes of up to millions of steps on one device."""

__version__ = "0.1.0"
