"""Many seeds as one number, with how sure it is.

Source: Agarwal et al. 2021, arXiv:2108.13264, "Deep reinforcement learning at the edge of the statistical precipice": the mean of
the middle half of the runs, and bootstrap intervals over runs.
"""

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half of R runs [R, ...], parts of a run counted in part; nothing is left out where there are fewer than three.

    >>> float(interquartile_mean(np.array([0.0, 10.0, 12.0, 1000.0])))
    11.0
    """
    ordered, number = np.sort(values, axis=0), values.shape[0]
    if number < 3:
        return ordered.mean(axis=0)
    # Run r covers (r, r + 1) of the ranks; the middle half is (R/4, 3R/4).
    rank = np.arange(number)
    weight = np.clip(np.minimum(rank + 1, 0.75 * number) - np.maximum(rank, 0.25 * number), 0.0, None)
    return np.tensordot(weight / weight.sum(), ordered, axes=1)


def interval(values: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A 95 % bootstrap interval of the interquartile mean of R >= 2 runs [R, ...]: runs are drawn again with replacement."""
    rng, number = np.random.default_rng(seed), values.shape[0]
    drawn = np.stack([interquartile_mean(values[rng.integers(0, number, number)]) for _ in range(RESAMPLES)])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return low, high


def aligned(curves: list[tuple[np.ndarray, np.ndarray]], points: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Curves (x, y) on the same x, as far as all of them reach: x [P], values [R, P]."""
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if first > last:
        return np.zeros(0), np.zeros((len(curves), 0))
    at = np.linspace(first, last, points if last > first else 1)
    return at, np.stack([np.interp(at, x, y) for x, y in curves])
