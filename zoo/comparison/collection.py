"""From finished runs to the results of their study."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from zoo.comparison.results import EPOCH_TYPES, RUN_TYPES, StudyResults, empty_cost, prediction_dtype
from zoo.comparison.runs import RunPlan, placeless
from zoo.data import create_data
from zoo.serialization import format_yaml, read_yaml
from zoo.training.run import RunFolder


class ImageShape(NamedTuple):
    """What a net is built for: channels, height and width of its images, and the number of classes."""

    input_size: tuple[int, int, int]
    num_classes: int


@dataclass(frozen=True, eq=False)
class StudyData:
    """What the results of a study need to know of its data.

    Args:
        class_names: In label order.
        labels: Of the test images.
        digests: Of each data set's content, by the data section of the runs' configs as YAML text.
        shapes: Of images and logits, by the data set's title.
    """

    class_names: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    digests: dict[str, str]
    shapes: dict[str, ImageShape]

    def digest(self, plan: RunPlan) -> str:
        """Return the digest of the data of a run."""
        return self.digests[format_yaml(dict(plan.config.data))]


def read_data(plans: Sequence[RunPlan]) -> StudyData:
    """Open every data set of the plans once.

    Raises:
        ValueError: They differ in classes or in the labels of the test images, so that answers cannot be paired.
    """
    digests: dict[str, str] = {}
    shapes: dict[str, ImageShape] = {}
    known: tuple[str, tuple[str, ...], npt.NDArray[np.int64]] | None = None
    for plan in plans:
        key = format_yaml(dict(plan.config.data))
        if key in digests:
            continue
        title = plan.cell.data if plan.cell else plan.config.data["name"]
        data = create_data(**plan.config.data)
        data.check()
        class_names, labels = tuple(data.class_names), data.labels("test").numpy()
        if known is None:
            known = (title, class_names, labels)
        elif class_names != known[1] or not np.array_equal(labels, known[2]):
            what = "classes" if class_names != known[1] else "labels of the test images"
            raise ValueError(f"{title} and {known[0]} differ in their {what}; make a study of each")
        digests[key] = data.digest()
        shapes[title] = ImageShape((data.in_channels, *data.image_size), data.num_classes)
    assert known is not None
    return StudyData(known[1], known[2], digests, shapes)


def collect(
    name: str,
    plans: Sequence[RunPlan],
    data: StudyData,
    cost: pd.DataFrame | None = None,
    earlier: StudyResults | None = None,
    planned: Sequence[RunPlan] | None = None,
) -> StudyResults:
    """Read the runs that are finished, in the order of the plans.

    Args:
        name: Of the study.
        plans: Runs of it; those of which ``earlier`` has no row and whose folder holds no finished run are left out.
        data: Of the runs.
        cost: A row per cell; ``None`` where it was not measured.
        earlier: Results whose rows stand for runs of the plans; see :mod:`zoo.comparison.reuse`.
        planned: All runs of the study, so that the results know what they lack; ``plans`` by default.

    Raises:
        ValueError: None is finished, or a folder's files contradict each other.
    """
    rows, epochs = [], []
    for plan in plans:
        if (known := _find_row(plan, earlier)) is not None:
            row, run_epochs = known
        elif plan.run.is_finished:
            row, run_epochs = read_run(plan, data.class_names)
        else:
            continue
        rows.append(row)
        epochs.extend(run_epochs)
    if not rows:
        raise ValueError(f"no run of study {name!r} is finished")
    return StudyResults(
        name=name,
        class_names=data.class_names,
        labels=data.labels.astype(prediction_dtype(len(data.class_names))),
        runs=pd.DataFrame(rows, columns=[*RUN_TYPES, "predictions"]),
        cost=empty_cost() if cost is None else cost,
        epochs=pd.DataFrame(epochs, columns=["cell", "seed", *EPOCH_TYPES]),
        planned=_planned_seeds(plans if planned is None else planned),
    )


def _planned_seeds(plans: Sequence[RunPlan]) -> dict[str, list[int]]:
    seeds: dict[str, list[int]] = {}
    for plan in plans:
        if plan.cell is not None:
            seeds.setdefault(plan.cell.title, []).append(plan.config.seed)
    return seeds


def _find_row(plan: RunPlan, earlier: StudyResults | None) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    if earlier is None or plan.cell is None:
        return None
    runs, epochs = (
        frame[(frame["cell"] == plan.cell.title) & (frame["seed"] == plan.config.seed)]
        for frame in (earlier.runs, earlier.epochs)
    )
    return None if runs.empty else (runs.iloc[0].to_dict(), epochs.to_dict("records"))


def read_run(plan: RunPlan, class_names: tuple[str, ...]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read a finished run: its row of the results, and one row per epoch.

    Raises:
        ValueError: The folder's files contradict each other or the classes.
    """
    assert plan.cell is not None
    run = plan.run
    result = json.loads(run.result.read_text(encoding="utf-8"))
    selected, last, commit = result["selected_epoch"], result["last_epoch"], result["commit"]
    row = {
        "cell": plan.cell.title,
        "model": plan.cell.model,
        "attention": plan.cell.attention,
        "data": plan.cell.data,
        "seed": plan.config.seed,
        "selected_epoch": selected["epoch"],
        "selected_top1": selected["top1"],
        "last_epoch": last["epoch"],
        "last_top1": last["top1"],
        "validation_top1": result["validation"].get(str(selected["epoch"])),
        "nll": selected["nll"],
        "ece": selected["ece"],
        "parameters": result["cost"]["parameters"],
        "macs": result["cost"]["macs"],
        "train_seconds": result["cost"]["train_seconds"],
        "images_per_second": result["cost"]["train_images_per_second"],
        "precision": result["precision"],
        "code_digest": result["code_digest"],
        "data_digest": result["data_digest"],
        "commit": commit["id"] if commit else None,
        "dirty": commit["dirty"] if commit else None,
        "versions": json.dumps(result["versions"]),
        "hardware": json.dumps(result["hardware"]),
        "command": plan.placeless_command(result["command"]),
        "config": format_yaml(placeless(read_yaml(run.config))),
        "predictions": _read_predictions(run, class_names),
    }
    return row, _read_epochs(plan)


def _read_predictions(run: RunFolder, class_names: tuple[str, ...]) -> Any:
    numbers = {name: number for number, name in enumerate(class_names)}
    with run.predictions.open(encoding="utf-8", newline="") as file:
        answers = [row["prediction"] for row in csv.DictReader(file)]
    unknown = next((answer for answer in answers if answer not in numbers), None)
    if unknown is not None:
        raise ValueError(f"{run.predictions} answers {unknown!r}, which is no class of the study's data")
    return np.array([numbers[answer] for answer in answers], dtype=prediction_dtype(len(class_names)))


def _read_epochs(plan: RunPlan) -> list[dict[str, Any]]:
    assert plan.cell is not None
    with plan.run.epochs.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    floats = [name for name in EPOCH_TYPES if name != "epoch"]
    return [
        {
            "cell": plan.cell.title,
            "seed": plan.config.seed,
            "epoch": int(row["epoch"]),
            **{name: float(row[name]) if row.get(name) else None for name in floats},
        }
        for row in rows
    ]
