"""From intervals to a recommendation: a gate is recommended when it is shown to gain what it costs, else nothing is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zoo.comparison.recommendation.sequential import (
    Interval,
    SequentialRule,
    Verdict,
    accuracy_differences,
    seeds_to_exclude_zero,
)
from zoo.comparison.recommendation.trials import PLAIN, Trials
from zoo.comparison.statistics import beats_guessing

Confidence = Literal["shown", "not shown", "not tried", "nothing learned"]


@dataclass(frozen=True)
class Contrast:
    """The difference between two nets at its last look.

    Args:
        net: Whose accuracy counts positive.
        base: What it is compared with.
        interval: Of the difference on held-out images, as fractions.
        verdict: What the interval shows.
        seeds_needed: Seeds with which the interval would exclude zero if means and spreads stayed; ``None`` where none
            would, or where it does.
    """

    net: str
    base: str
    interval: Interval
    verdict: Verdict
    seeds_needed: int | None

    @property
    def is_open(self) -> bool:
        """Whether more seeds could still decide it."""
        return self.verdict in ("open", "gain, perhaps too small")

    def is_worth(self, margin: float) -> bool:
        """Whether a gain is shown and is, at best estimate, at least ``margin``."""
        return self.verdict == "gain" and self.interval.mean >= margin

    def sentence(self) -> str:
        """State the difference as a table would.

        >>> Contrast("se", "none", Interval(0.01, -0.004, 0.024, 0.98, 3, 500), "open", 7).sentence()
        'no difference shown between se and none: +1.0 points (-0.4 to +2.4; 3 seeds, 500 images); 7 seeds might do'
        >>> Contrast("se", "none", Interval(0.0, -0.545, 0.545, 0.98, 3, 6), "open", None).sentence().split("; ")[2]
        'were the mean to stay, no number of seeds would do with so few held-out images (--data.validation_fraction)'
        """
        found = self.interval
        mean, low, high = (f"{100 * value:+.1f}" for value in (found.mean, found.low, found.high))
        figures = f"{mean} points ({low} to {high}; {found.num_seeds} seeds, {found.num_images} images)"
        words = {
            "gain": f"{self.net} gains over {self.base}",
            "gain, perhaps too small": f"{self.net} gains over {self.base}, perhaps less than its price",
            "loss": f"{self.net} loses against {self.base}",
            "no gain worth its price": f"{self.net} has no gain over {self.base} that is worth its price",
            "open": f"no difference shown between {self.net} and {self.base}",
        }
        needed = f"; {self.seeds_needed} seeds might do" if self.seeds_needed is not None else ""
        if self.verdict == "open" and self.seeds_needed is None:
            needed = (
                "; were the mean to stay, no number of seeds would do with so few held-out images "
                "(--data.validation_fraction)"
            )
        return f"{words[self.verdict]}: {figures}{needed}"


@dataclass(frozen=True)
class Decision:
    """What is recommended.

    Args:
        net: ``none`` or a gate.
        confidence: ``shown`` when intervals decided it; ``not shown`` when the runs left it open and the cheaper net is
            named; ``not tried`` when nothing was to be compared; ``nothing learned`` when all nets only guess, so that
            their differences say nothing.
        reason: In a sentence.
    """

    net: str
    confidence: Confidence
    reason: str


def contrast_at(
    trials: Trials, net: str, base: str, *, rule: SequentialRule, look: int, num_seeds: int, margin: float
) -> Contrast:
    """Compare two nets at a look."""
    differences = accuracy_differences(trials.stack(net, num_seeds), trials.stack(base, num_seeds))
    interval = rule.interval(differences, look)
    verdict = interval.verdict(margin)
    needed = seeds_to_exclude_zero(differences, rule.error_at(look)) if verdict == "open" else None
    return Contrast(net, base, interval, verdict, needed)


def choose(gates: Sequence[str], contrasts: Mapping[tuple[str, str], Contrast], margin: float) -> Decision:
    """Choose among the plain net and the gates that were tried.

    A gate is a candidate when its gain over the plain net is shown and is worth its price. Of two candidates the
    cheaper one is taken, unless the dearer one is shown to gain over it, again by what is worth its price.

    Args:
        gates: Those tried, cheapest first.
        contrasts: By net and base.
        margin: The smallest gain that is worth the price, a fraction.
    """
    worth = [gate for gate in gates if contrasts[gate, PLAIN].is_worth(margin)]
    if worth:
        best = worth[0]
        for dearer in worth[1:]:
            if contrasts[dearer, best].is_worth(margin):
                best = dearer
        reason = contrasts[best, PLAIN].sentence()
        for other in worth:
            if other != best:
                pair = (other, best) if (other, best) in contrasts else (best, other)
                reason += f"; {contrasts[pair].sentence()}"
        return Decision(best, "shown", reason)
    if not gates:
        return Decision(PLAIN, "not tried", "no gate was tried")
    sentences = "; ".join(contrasts[gate, PLAIN].sentence() for gate in gates)
    still_open = [gate for gate in gates if contrasts[gate, PLAIN].is_open]
    if still_open:
        return Decision(
            PLAIN, "not shown", f"no gain worth its price is shown, and the plain net costs least: {sentences}"
        )
    loses = any(contrasts[gate, PLAIN].verdict == "loss" for gate in gates)
    return Decision(PLAIN, "shown", f"no {'gain' if loses else 'difference'} worth its price: {sentences}")


def find_guessing(top1: Mapping[str, Sequence[float]], chance: float, num_images: int) -> str | None:
    """Return a sentence that says so where no net is shown to do better than guessing, else ``None``.

    Args:
        top1: Accuracy on held-out images by net, one per seed.
        chance: Share of the commonest class.
        num_images: Number of held-out images.

    >>> find_guessing({"none": [0.24, 0.26], "se": [0.26, 0.27]}, 0.25, 600)
    'no net does better than naming the commonest class, 25.0 % of 600 held-out images: none 25.0 %, se 26.5 %'
    >>> find_guessing({"none": [0.24, 0.26], "se": [0.30, 0.31]}, 0.25, 600)
    """
    means = {net: sum(seeds) / len(seeds) for net, seeds in top1.items()}
    if any(beats_guessing(mean, chance, num_images) for mean in means.values()):
        return None
    figures = ", ".join(f"{net} {100 * mean:.1f} %" for net, mean in means.items())
    share = f"{100 * chance:.1f} % of {num_images} held-out images"
    return f"no net does better than naming the commonest class, {share}: {figures}"
