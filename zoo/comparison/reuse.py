"""Runs that a results file holds and that need not be done again."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from zoo.comparison.collection import StudyData
from zoo.comparison.results import StudyResults, empty_cost
from zoo.comparison.runs import RunPlan, config_difference
from zoo.serialization import parse_yaml


def select_reusable(earlier: StudyResults, plans: Sequence[RunPlan], data: StudyData, code_digest: str) -> StudyResults:
    """Return the part of some results that stands for planned runs: cell, seed, config, code and data are the same.

    Args:
        earlier: Results of the study, or of a part of it.
        plans: The runs of the study.
        data: Their data.
        code_digest: Of the code that decides a run's result, as it is now.

    Raises:
        ValueError: The results are of other classes or test images, so that answers cannot be paired.
    """
    if earlier.class_names != data.class_names or not np.array_equal(earlier.labels, data.labels):
        raise ValueError(f"the results of study {earlier.name!r} are of other classes or test images than the plan's")
    planned = {(plan.cell.title, plan.config.seed): plan for plan in plans if plan.cell is not None}

    def is_reusable(cell: str, seed: int, config: str, code: str, content: str) -> bool:
        plan = planned.get((cell, seed))
        return (
            plan is not None
            and (code, content) == (code_digest, data.digest(plan))
            and not config_difference(parse_yaml(config), plan.config.to_dict())
        )

    columns = [earlier.runs[name] for name in ("cell", "seed", "config", "code_digest", "data_digest")]
    chosen = np.array([is_reusable(*values) for values in zip(*columns, strict=True)], dtype=bool)
    runs = earlier.runs[chosen]
    kept = set(zip(runs["cell"], runs["seed"], strict=True))
    epochs = [run in kept for run in zip(earlier.epochs["cell"], earlier.epochs["seed"], strict=True)]
    return dataclasses.replace(
        earlier, runs=runs, epochs=earlier.epochs[np.array(epochs, dtype=bool)], cost=empty_cost()
    )


def has_row(results: StudyResults, plan: RunPlan) -> bool:
    """Tell whether a run has a row."""
    runs = results.runs
    return plan.cell is not None and bool(
        ((runs["cell"] == plan.cell.title) & (runs["seed"] == plan.config.seed)).any()
    )
