"""When to stop adding seeds: intervals that stay true although they are looked at several times.

Looking after every seed and stopping as soon as an interval excludes zero finds differences that are not there. So the
looks are planned before the first run, and the error allowed in all (5 % for a level of 95 %) is divided among them
and among the contrasts that are judged:

- The share spent up to a look with n of at most N seeds is ``(n / N) ** 2``, the power family of Kim and DeMets, so
  that most of it is left for the last look. Of each look's share every contrast gets an equal part.
- Each interval is held to its own part by Bonferroni's inequality, which needs no assumption on how looks and
  contrasts depend on each other. So the chance that any of the intervals ever shown misses its true difference is at
  most the whole.
- When time runs out between two looks, the next look takes the seeds that are there: the clock does not know the
  accuracies. Its share is spent by that, and more time goes to the look after it.

The interval of one look is for the mean paired difference over seeds and images. Two parts of its half width are added
by their squares (Zou and Donner): that of a t interval over the seeds' means and that of a t interval over the images'
means. So it speaks of other seeds and of other images of the same kind; what seeds and images do together is in both
parts, which makes it a little wide. To the images are added, at half weight, one that only the gate gets right and one
that only the plain net gets right (Agresti and Min), so that few images without any disagreement prove nothing.

Sources:
    Kim, DeMets: Design and analysis of group sequential tests based on the type I error spending rate function,
    Biometrika 74, 1987, https://doi.org/10.1093/biomet/74.1.149
    Zou, Donner: Construction of confidence limits about effect measures: a general approach, Statistics in Medicine 27,
    2008, https://doi.org/10.1002/sim.3095
    Agresti, Min: Simple improved confidence intervals for comparing matched proportions, Statistics in Medicine 24,
    2005, https://doi.org/10.1002/sim.1781
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

FIRST_LOOK = 3
LATER_LOOKS = (5, 8, 12)

Verdict = Literal["gain", "gain, perhaps too small", "loss", "no gain worth its price", "open"]


@dataclass(frozen=True)
class Interval:
    """A mean difference of accuracy and what it may be, as fractions.

    Args:
        mean: Over seeds and images.
        low: Lower end.
        high: Upper end.
        level: Of this interval alone; the rule's level is that of all intervals together.
        num_seeds: Pairs of runs behind it.
        num_images: Images behind it.
    """

    mean: float
    low: float
    high: float
    level: float
    num_seeds: int
    num_images: int

    def verdict(self, margin: float) -> Verdict:
        """Say what the interval shows.

        ``no gain worth its price`` stands when even the upper end is below ``margin`` although zero is inside, and
        ``gain, perhaps too small`` when zero is outside and the mean is below ``margin``, but the upper end is not.

        >>> Interval(0.02, 0.01, 0.03, 0.95, 5, 100).verdict(margin=0.005)
        'gain'
        >>> Interval(0.0, -0.004, 0.004, 0.95, 5, 100).verdict(margin=0.005)
        'no gain worth its price'
        >>> Interval(0.004, 0.001, 0.007, 0.95, 5, 100).verdict(margin=0.005)
        'gain, perhaps too small'
        """
        if self.low > 0:
            return "gain, perhaps too small" if self.mean < margin <= self.high else "gain"
        if self.high < 0:
            return "loss"
        return "no gain worth its price" if self.high < margin else "open"


@dataclass(frozen=True)
class SequentialRule:
    """Planned looks and the error that each may make.

    Args:
        looks: Numbers of seeds at which to look, rising; the first is at least 2.
        num_contrasts: Differences that are judged at each look, at least 1.
        level: Of all intervals of all looks and contrasts together, between 0 and 1.

    Raises:
        ValueError: A value is out of its range.
    """

    looks: tuple[int, ...]
    num_contrasts: int
    level: float = 0.95

    def __post_init__(self) -> None:
        rising = all(first < second for first, second in zip(self.looks, self.looks[1:], strict=False))
        if not self.looks or self.looks[0] < 2 or not rising:
            raise ValueError(f"looks ({self.looks}) must be rising numbers of seeds from 2 on")
        if self.num_contrasts < 1:
            raise ValueError(f"num_contrasts ({self.num_contrasts}) must be at least 1")
        if not 0 < self.level < 1:
            raise ValueError(f"level ({self.level}) must be between 0 and 1")

    def error_at(self, look: int) -> float:
        """Return the error that one contrast's interval may make at a look, counted from 0.

        >>> rule = SequentialRule(looks=(3, 5, 8), num_contrasts=3)
        >>> round(sum(3 * rule.error_at(look) for look in range(3)), 12)
        0.05
        """
        before = self.looks[look - 1] if look else 0
        share = (self.looks[look] ** 2 - before**2) / self.looks[-1] ** 2
        return (1 - self.level) * share / self.num_contrasts

    def interval(self, differences: npt.NDArray[Any], look: int) -> Interval:
        """Return the interval of one contrast at a look.

        Args:
            differences: Right or wrong with the gate minus right or wrong without it: -1, 0 or 1 for each pair of runs
                and each image, (seeds, images).
            look: Which, counted from 0; the number of seeds may be less than planned when time ran out.

        Raises:
            ValueError: Fewer than two seeds or images, more seeds than planned, or no such look.
        """
        if not 0 <= look < len(self.looks):
            raise ValueError(f"look {look} must be one of 0 to {len(self.looks) - 1}")
        seeds = len(differences)
        if seeds > self.looks[look]:
            raise ValueError(f"{seeds} seeds are more than the {self.looks[look]} planned for look {look}")
        return paired_interval(differences, self.error_at(look))

    def describe(self) -> str:
        """State the rule in a sentence or two."""
        looks = " and ".join([", ".join(map(str, self.looks[:-1]))] * (len(self.looks) > 1) + [str(self.looks[-1])])
        return (
            f"Looks after {looks} seeds, planned before the first run; the error of {100 * (1 - self.level):.3g} % is "
            f"spent as the square of the share of seeds and divided among {self.num_contrasts} "
            f"contrast{'s' * (self.num_contrasts > 1)} (Bonferroni), so all intervals of all looks hold together with "
            f"{100 * self.level:.3g} %. Each speaks of other seeds and other images."
        )


def plan_looks(max_seeds: int) -> tuple[int, ...]:
    """Return the looks for at most so many seeds.

    Raises:
        ValueError: There are fewer seeds than the first look needs.

    >>> plan_looks(3), plan_looks(6), plan_looks(20)
    ((3,), (3, 5, 6), (3, 5, 8, 12, 20))
    """
    if max_seeds < FIRST_LOOK:
        raise ValueError(f"max_seeds ({max_seeds}) must be at least {FIRST_LOOK}, the seeds of the first look")
    return (*(look for look in (FIRST_LOOK, *LATER_LOOKS) if look < max_seeds), max_seeds)


def paired_interval(differences: npt.NDArray[Any], error: float) -> Interval:
    """Return the interval over seeds and images that misses the truth with probability ``error`` at most.

    Args:
        differences: -1, 0 or 1, (seeds, images), at least two of both.
        error: Both sides together, between 0 and 1.

    Raises:
        ValueError: There are fewer seeds or images.
    """
    seeds, images = differences.shape
    if seeds < 2 or images < 2:
        raise ValueError(f"differences of {seeds} seeds and {images} images must be of at least 2 and 2")
    spread = Spread.of(differences)
    half = spread.half_width(seeds, error)
    return Interval(spread.mean, spread.mean - half, spread.mean + half, 1 - error, seeds, images)


@dataclass(frozen=True)
class Spread:
    """The mean of paired differences and the two variances that make it uncertain.

    Args:
        mean: Over seeds and images.
        of_seeds: Variance of the seeds' means.
        of_images: Variance of the images' means.
        num_images: How many there are.
    """

    mean: float
    of_seeds: float
    of_images: float
    num_images: int

    @classmethod
    def of(cls, differences: npt.NDArray[Any]) -> "Spread":
        """Take the variances of (seeds, images)."""
        values = np.asarray(differences, dtype=np.float64)
        of_image = values.mean(axis=0)
        mean = float(of_image.mean())
        # The two half images of Agresti and Min add the squares 1/2 + 1/2.
        of_images = float(((of_image - mean) ** 2).sum() + 1) / (len(of_image) + 1)
        return cls(mean, float(values.mean(axis=1).var(ddof=1)), of_images, len(of_image))

    def half_width(self, num_seeds: int, error: float) -> float:
        """Return half the width of the interval with so many seeds, at least 2, of this spread."""
        from scipy.stats import t

        of_seeds = t.isf(error / 2, num_seeds - 1) * math.sqrt(self.of_seeds / num_seeds)
        of_images = t.isf(error / 2, self.num_images - 1) * math.sqrt(self.of_images / self.num_images)
        return math.hypot(of_seeds, of_images)


def seeds_to_exclude_zero(differences: npt.NDArray[Any], error: float, limit: int = 1000) -> int | None:
    """Return how many seeds the interval would need to exclude zero if mean and spreads stayed as they are.

    ``None`` when ``limit`` would not do: the images at hand leave the difference open, however many seeds there are.
    """
    spread = Spread.of(differences)
    counts = range(len(differences), limit + 1)
    return next((seeds for seeds in counts if spread.half_width(seeds, error) < abs(spread.mean)), None)


def accuracy_differences(
    gated: Sequence[npt.NDArray[np.bool_]], plain: Sequence[npt.NDArray[np.bool_]]
) -> npt.NDArray[np.int8]:
    """Return the paired differences (seeds, images) of what two nets got right, in the same order of seeds.

    Raises:
        ValueError: The nets have another number of seeds or images.
    """
    first, second = np.array(gated, dtype=np.int8), np.array(plain, dtype=np.int8)
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"answers of shape {first.shape} and {second.shape} must be (seeds, images) of the same runs")
    return first - second
