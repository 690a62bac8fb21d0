"""What is asked of a recommendation, and what it answers."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.comparison.choices import Choice
from zoo.comparison.recommendation.data_measures import DataMeasures, ImageMeasures
from zoo.comparison.recommendation.decision import Contrast, Decision
from zoo.comparison.recommendation.evidence import HeldOutImages, Sign
from zoo.comparison.recommendation.planning import TrialPlan
from zoo.comparison.recommendation.price import Price
from zoo.comparison.recommendation.saliency import SaliencyShares
from zoo.comparison.recommendation.sequential import SequentialRule


@dataclass(frozen=True)
class Request:
    """What a person asks.

    Args:
        data: A data set with its options; a folder is ``image_folder`` with its ``root``.
        model: The net with its options.
        folder: Of the runs and the report; a recommendation that was interrupted goes on in it.
        budget_minutes: Of all work together, sessions that were interrupted included; above 0.
        latency_budget_percent: How much more one image may take than with the plain net, in percent; ``None`` for any.
        margin_points: The smallest gain in percentage points that is worth the price; above 0.
        recipe: What all runs share besides, in the layout of a run's config.

    Raises:
        ValueError: A value is out of its range, or the recipe sets what the procedure decides.
    """

    data: Choice
    model: Choice
    folder: Path
    budget_minutes: float = 30.0
    latency_budget_percent: float | None = None
    margin_points: float = 0.5
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("budget_minutes", "margin_points"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} ({getattr(self, name)}) must be above 0")
        if self.latency_budget_percent is not None and self.latency_budget_percent < 0:
            raise ValueError(f"latency_budget_percent ({self.latency_budget_percent}) must be at least 0")
        for option in ("max_epochs", "max_steps", "max_time"):
            if option in self.recipe.get("trainer", {}):
                raise ValueError(f"trainer.{option} has no effect here: the budget decides how long runs are")

    @property
    def margin(self) -> float:
        """The margin as a fraction."""
        return self.margin_points / 100

    def to_dict(self) -> dict[str, Any]:
        """Return the request as plain values, without the folder, which is only a place."""
        values = {part.name: getattr(self, part.name) for part in dataclasses.fields(self) if part.name != "folder"}
        for name in ("data", "model"):
            values[name] = getattr(self, name).title
        return {**values, "recipe": dict(self.recipe)}


@dataclass(frozen=True)
class FinalAccuracy:
    """Accuracy of a net on the test images after its last epoch.

    Args:
        net: ``none`` or a gate.
        top1: Of each seed, fractions.
    """

    net: str
    top1: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return sum(self.top1) / len(self.top1)


@dataclass(frozen=True, eq=False)
class Examples:
    """Held-out images with what was found in them."""

    images: HeldOutImages
    measures: ImageMeasures
    saliency: SaliencyShares


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The answer, with everything that led to it.

    Args:
        request: What was asked.
        decision: What is recommended, how sure that is, and why.
        data_text: The data set's own description.
        summary: Measures of the held-out images.
        signs: What speaks for a spatial gate and what does not.
        prices: Of each net that was built.
        refused: Gates that were not tried, with the reason.
        plan: Length and number of runs; ``None`` when nothing was trained.
        rule: The sequential rule; ``None`` when nothing was trained.
        contrasts: Differences at their last look.
        validation_top1: Accuracy on held-out images by net, one per seed, after the last epoch.
        test: Accuracy on test images by net, read after the decision.
        used_minutes: Of the budget.
        examples: For pictures; ``None`` when nothing was trained.
    """

    request: Request
    decision: Decision
    data_text: str
    summary: DataMeasures
    signs: Sequence[Sign]
    prices: Mapping[str, Price]
    refused: Mapping[str, str]
    plan: TrialPlan | None
    rule: SequentialRule | None
    contrasts: Sequence[Contrast]
    validation_top1: Mapping[str, Sequence[float]]
    test: Sequence[FinalAccuracy]
    used_minutes: float
    examples: Examples | None
