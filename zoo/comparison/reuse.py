"""Runs that a results file holds and that need not be done again."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from zoo.comparison.collection import StudyData
from zoo.comparison.results import StudyResults, empty_cost
from zoo.comparison.runs import RunPlan, config_difference
from zoo.serialization import parse_yaml


def select_reusable(earlier: StudyResults, plans: Sequence[RunPlan], data: StudyData, code_digest: str) -> StudyResults:
    """Return the part of some results that stands for planned runs: net, seed, config, code and data are the same.

    Cells are named as in the plans: the title of a cell names its data only in a study of several data sets.

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
    planned = {
        (plan.cell.model, plan.cell.attention, plan.cell.data, plan.config.seed): plan
        for plan in plans
        if plan.cell is not None
    }
    titles: dict[tuple[str, int], str] = {}
    for row in earlier.runs.to_dict("records"):
        plan = planned.get((row["model"], row["attention"], row["data"], row["seed"]))
        if plan is not None and plan.cell is not None and _stands_for(row, plan, data, code_digest):
            titles[row["cell"], row["seed"]] = plan.cell.title
    runs, epochs = (_renamed(frame, titles) for frame in (earlier.runs, earlier.epochs))
    return dataclasses.replace(earlier, runs=runs, epochs=epochs, cost=empty_cost())


def _stands_for(row: Mapping[Any, Any], plan: RunPlan, data: StudyData, code_digest: str) -> bool:
    digests = (row["code_digest"], row["data_digest"])
    same_config = not config_difference(parse_yaml(row["config"]), plan.config.to_dict())
    return digests == (code_digest, data.digest(plan)) and same_config


def _renamed(frame: pd.DataFrame, titles: Mapping[tuple[str, int], str]) -> pd.DataFrame:
    """Return the rows whose run has a title, under that title."""
    new = [titles.get(run) for run in zip(frame["cell"], frame["seed"], strict=True)]
    chosen = np.array([title is not None for title in new], dtype=bool)
    return frame[chosen].assign(cell=[title for title in new if title is not None])


def has_row(results: StudyResults, plan: RunPlan) -> bool:
    """Tell whether a run has a row."""
    runs = results.runs
    return plan.cell is not None and bool(
        ((runs["cell"] == plan.cell.title) & (runs["seed"] == plan.config.seed)).any()
    )
