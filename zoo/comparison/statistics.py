"""Statistics of paired runs: what a few seeds allow one to say about a difference."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_SEEDS_CONSIDERED = 1000
_ROUNDING = 1e-12
"""Differences of accuracies that are closer than this differ by the arithmetic alone."""
_EXACT_BELOW = 25
"""Of McNemar's test: with fewer discordant images the binomial distribution is used instead of its approximation."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, and between what its true value is to be expected.

    Args:
        mean: Of the values given.
        low: Lower end, ``None`` where nothing is known of the spread: with a single seed, or values that are all equal.
        high: Upper end, or ``None``.
        level: Share of such intervals that hold the true mean.
        num_seeds: Values that the mean is of.
        std: Standard deviation over seeds (of a sample, divided by n - 1), ``None`` with one.
        p_value: Of a true mean of 0, two-sided; ``None`` without an interval.
    """

    mean: float
    low: float | None
    high: float | None
    level: float
    num_seeds: int
    std: float | None
    p_value: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether both ends lie on the same side of zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def paired_difference(differences: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean of differences between paired runs, with Student's t interval and the p-value of the t test.

    Accuracies are counts of images, so a few seeds can differ by the very same number of them. That is chance and no
    proof, although a t test calls it one: such differences have no interval.

    Args:
        differences: One per seed: a run minus the run it is paired with.
        level: Between 0 and 1.

    Raises:
        ValueError: There is no difference, one is no finite number, or the level is out of range.

    >>> interval = paired_difference([0.01, 0.02, 0.03])
    >>> round(interval.mean, 4), round(interval.low, 4), round(interval.high, 4)
    (0.02, -0.0048, 0.0448)
    """
    values = np.asarray(differences, dtype=np.float64)
    _check_level(level)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(f"differences ({list(differences)}) must be one or more finite numbers")
    mean, count = float(values.mean()), len(values)
    if count == 1:
        return Interval(mean, None, None, level, 1, None, None)
    from scipy import stats

    std = float(values.std(ddof=1))
    error = std / math.sqrt(count)
    if error < _ROUNDING:
        return Interval(mean, None, None, level, count, 0.0, None)
    half = float(stats.t.ppf((1 + level) / 2, count - 1)) * error
    p_value = float(2 * stats.t.sf(abs(mean) / error, count - 1))
    return Interval(mean, mean - half, mean + half, level, count, std, p_value)


def bootstrap_difference(
    correct: npt.NDArray[np.bool_],
    baseline_correct: npt.NDArray[np.bool_],
    *,
    level: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Return a percentile interval of the difference in accuracy, from resampled seeds and resampled test images.

    Both are drawn with replacement, the same for both nets, so it says what other seeds and other test images of the
    same kind would give. With few seeds such an interval is too narrow (three seeds have only ten distinct
    resamples); the t interval beside it does not have this fault.

    Args:
        correct: (seeds, images), whether each image was classified correctly.
        baseline_correct: The same of the nets they are paired with.
        level: Between 0 and 1.
        num_resamples: At least 100.
        seed: Of the resampling.

    Returns:
        Low and high, or ``None`` with a single seed.

    Raises:
        ValueError: The shapes differ or a number is out of range.
    """
    _check_level(level)
    if correct.shape != baseline_correct.shape or correct.ndim != 2 or 0 in correct.shape:
        raise ValueError(f"correct {correct.shape} and its baseline {baseline_correct.shape} must be (seeds, images)")
    if num_resamples < 100:
        raise ValueError(f"num_resamples ({num_resamples}) must be at least 100")
    num_seeds, num_images = correct.shape
    if num_seeds == 1:
        return None
    generator = np.random.default_rng(seed)
    gain = (correct.astype(np.int8) - baseline_correct.astype(np.int8)).astype(np.float32)
    means = np.empty(num_resamples)
    for number in range(num_resamples):
        times_drawn = np.bincount(generator.integers(num_images, size=num_images), minlength=num_images)
        of_seeds = gain @ times_drawn.astype(np.float32) / num_images
        means[number] = of_seeds[generator.integers(num_seeds, size=num_seeds)].mean()
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mcnemar_p_value(correct: npt.NDArray[np.bool_], baseline_correct: npt.NDArray[np.bool_]) -> float:
    """Return the p-value of McNemar's test: whether two nets err equally often on the same images.

    It looks at the images that only one of the two classifies correctly, and speaks of these two nets, not of others
    trained alike.

    Args:
        correct: (images,)
        baseline_correct: (images,)

    Raises:
        ValueError: The shapes differ.

    >>> round(mcnemar_p_value(np.array([True] * 8 + [False] * 2), np.array([False] * 7 + [True] * 3)), 4)
    0.1797
    """
    if correct.shape != baseline_correct.shape or correct.ndim != 1:
        raise ValueError(f"correct {correct.shape} and its baseline {baseline_correct.shape} must be (images,)")
    from statsmodels.stats.contingency_tables import mcnemar

    only, only_baseline = int((correct & ~baseline_correct).sum()), int((baseline_correct & ~correct).sum())
    if only + only_baseline == 0:
        return 1.0
    table = [
        [int((correct & baseline_correct).sum()), only],
        [only_baseline, int((~correct & ~baseline_correct).sum())],
    ]
    return float(mcnemar(table, exact=only + only_baseline < _EXACT_BELOW).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of a table so that the chance of any false finding in it stays below the level asked for.

    Args:
        p_values: ``None`` where there is no test; it stays so and does not count.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    tested = [value for value in p_values if value is not None]
    if not tested:
        return list(p_values)
    from statsmodels.stats.multitest import multipletests

    adjusted = iter(multipletests(tested, method="holm")[1].tolist())
    return [None if value is None else next(adjusted) for value in p_values]


def seeds_needed(differences: Sequence[float], level: float = 0.95) -> int | None:
    """Return with how many seeds the t interval would exclude zero, were mean and spread to stay as they are.

    Returns:
        The number, which is at most the present one when the interval excludes zero already; ``None`` when one seed,
        equal differences or a mean of zero say nothing of it, or more than ``MAX_SEEDS_CONSIDERED`` would be needed.

    >>> seeds_needed([0.01, 0.02, 0.03]), seeds_needed([0.02])
    (4, None)
    """
    interval = paired_difference(differences, level)
    if not interval.std or interval.mean == 0:
        return None
    from scipy import stats

    counts = np.arange(2, MAX_SEEDS_CONSIDERED + 1)
    halves = stats.t.ppf((1 + level) / 2, counts - 1) * interval.std / np.sqrt(counts)
    enough = counts[halves < abs(interval.mean)]
    return int(enough[0]) if len(enough) else None


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level ({level}) must be between 0 and 1")


def beats_guessing(top1: float, chance: float, num_images: int, level: float = 0.05) -> bool:
    """Return whether an accuracy is shown to be above that of always naming the commonest class (binomial test).

    Args:
        top1: Share of right answers.
        chance: Share of the commonest class.
        num_images: Images that were classified.
        level: How often a net that guesses may be taken for one that learned something.

    >>> beats_guessing(0.26, 0.25, 600), beats_guessing(0.30, 0.25, 600)
    (False, True)
    """
    from scipy import stats

    return bool(stats.binom.sf(round(top1 * num_images) - 1, num_images, chance) < level)
