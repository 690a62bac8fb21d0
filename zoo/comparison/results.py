"""The results of a study as one tidy Parquet file: a row per run, with its epochs and its answer to each test image."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from zoo.serialization import write_atomically

FORMAT = 1
_KEY = b"zoo_study"

RUN_TYPES: dict[str, pa.DataType] = {
    "cell": pa.string(),
    "model": pa.string(),
    "attention": pa.string(),
    "data": pa.string(),
    "seed": pa.int64(),
    "selected_epoch": pa.int64(),
    "selected_top1": pa.float64(),
    "last_epoch": pa.int64(),
    "last_top1": pa.float64(),
    "validation_top1": pa.float64(),
    "nll": pa.float64(),
    "ece": pa.float64(),
    "parameters": pa.int64(),
    "macs": pa.int64(),
    "train_seconds": pa.float64(),
    "images_per_second": pa.float64(),
    "precision": pa.string(),
    "code_digest": pa.string(),
    "data_digest": pa.string(),
    "commit": pa.string(),
    "dirty": pa.bool_(),
    "versions": pa.string(),
    "hardware": pa.string(),
    "command": pa.string(),
    "config": pa.string(),
}
COST_TYPES: dict[str, pa.DataType] = {
    "cell": pa.string(),
    "model": pa.string(),
    "attention": pa.string(),
    "latency_ms_batch1": pa.float64(),
    "latency_ratio_batch1": pa.float64(),
    "latency_ratio_batch1_low": pa.float64(),
    "latency_ratio_batch1_high": pa.float64(),
    "latency_ratio_batch64": pa.float64(),
    "latency_ratio_batch64_low": pa.float64(),
    "latency_ratio_batch64_high": pa.float64(),
    "train_rate_ratio": pa.float64(),
    "train_rate_ratio_low": pa.float64(),
    "train_rate_ratio_high": pa.float64(),
    "threads": pa.int64(),
    "rounds": pa.int64(),
    "hardware": pa.string(),
    "versions": pa.string(),
    "commit": pa.string(),
}
EPOCH_TYPES: dict[str, pa.DataType] = {
    "epoch": pa.int64(),
    "train_loss": pa.float64(),
    "train_top1": pa.float64(),
    "val_loss": pa.float64(),
    "val_top1": pa.float64(),
}
# A run that is not part of a checkout has no commit; what was not measured is NaN in memory and null in the file.
_MAY_BE_MISSING = {"commit", "dirty", "validation_top1", "train_loss", "train_top1", "val_loss", "val_top1"}


@dataclass(frozen=True, eq=False)
class StudyResults:
    """What the runs of a study showed.

    Args:
        name: Of the study.
        class_names: In label order.
        labels: The right class of each test image, (test images,).
        runs: One row per run with the columns of ``RUN_TYPES`` and ``predictions``: the class that the weights of the
            selected epoch give each test image, an unsigned integer array in the order of ``labels``.
        cost: One row per cell with the columns of ``COST_TYPES``; no rows when the cost was not measured.
        epochs: One row per run and epoch: ``cell``, ``seed`` and the columns of ``EPOCH_TYPES``.
        planned: The seeds of each cell that the study asks for, finished or not; empty where that is not known.

    Raises:
        ValueError: Tables and labels contradict each other, or a column is missing, unknown or of another type.
    """

    name: str
    class_names: tuple[str, ...]
    labels: npt.NDArray[Any]
    runs: pd.DataFrame
    cost: pd.DataFrame
    epochs: pd.DataFrame
    planned: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_columns("runs", self.runs, [*RUN_TYPES, "predictions"])
        _check_columns("cost", self.cost, COST_TYPES)
        _check_columns("epochs", self.epochs, ["cell", "seed", *EPOCH_TYPES])
        _check_runs(self.runs, self.labels, self.class_names)
        runs = set(zip(self.runs["cell"], self.runs["seed"], strict=True))
        strays = set(zip(self.epochs["cell"], self.epochs["seed"], strict=True)) - runs
        if strays:
            cell, seed = min(strays)
            raise ValueError(f"epochs hold {cell!r} with seed {seed}, of which there is no run")
        if self.cost["cell"].duplicated().any():
            raise ValueError(f"the cost of {self.cost['cell'][self.cost['cell'].duplicated()].iloc[0]!r} stands twice")


def _check_columns(table: str, frame: pd.DataFrame, expected: Iterable[str]) -> None:
    expected = list(expected)
    missing = [column for column in expected if column not in frame.columns]
    unknown = [column for column in frame.columns if column not in expected]
    if missing or unknown:
        problems = [f"lack {', '.join(missing)}"] * bool(missing) + [f"have unknown {', '.join(unknown)}"] * bool(
            unknown
        )
        raise ValueError(f"the columns of {table} {' and '.join(problems)}")
    for column in expected:
        if column not in _MAY_BE_MISSING and frame[column].isna().any():
            raise ValueError(f"{table}: column {column!r} has rows without a value")


def _check_runs(runs: pd.DataFrame, labels: npt.NDArray[Any], class_names: Sequence[str]) -> None:
    """Every run answers every test image with a class, and its accuracy follows from its answers."""
    if len(labels) == 0 or labels.ndim != 1:
        raise ValueError(f"labels of shape {labels.shape} must be a row of at least one label")
    if labels.min() < 0 or labels.max() >= len(class_names):
        raise ValueError(f"labels run from {labels.min()} to {labels.max()}, but there are {len(class_names)} classes")
    for row in runs.itertuples():
        run = f"run {row.cell!r} with seed {row.seed}"
        if len(row.predictions) != len(labels):
            raise ValueError(f"{run} has {len(row.predictions)} predictions, but there are {len(labels)} test images")
        if row.predictions.dtype.kind != "u" or row.predictions.max() >= len(class_names):
            raise ValueError(f"{run} has predictions that are none of the {len(class_names)} classes")
        top1 = float(np.mean(row.predictions == labels))
        if abs(top1 - row.selected_top1) > 1e-6:
            raise ValueError(f"{run} states selected_top1 {row.selected_top1:.6f}, but its predictions give {top1:.6f}")
    repeated = runs.duplicated(["cell", "seed"])
    if repeated.any():
        cell, seed = runs.loc[repeated, ["cell", "seed"]].iloc[0]
        raise ValueError(f"run {cell!r} with seed {seed} stands twice")
    groups = runs.groupby("cell")[["model", "attention", "data"]].nunique()
    if (groups > 1).any(axis=None):
        raise ValueError(f"cell {groups.index[(groups > 1).any(axis=1)][0]!r} names more than one thing")


def prediction_dtype(num_classes: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned integer type that holds every class.

    >>> prediction_dtype(256).__name__, prediction_dtype(1000).__name__
    ('uint8', 'uint16')
    """
    return np.uint8 if num_classes <= 256 else np.uint16


def write_results(results: StudyResults, path: Path | str) -> None:
    """Write one Parquet file, atomically; equal results give equal bytes with the same version of pyarrow.

    A run's epochs are a nested column of its row; the study's name, classes, labels, cost and planned seeds are JSON
    beside the schema.

    Raises:
        ValueError: A value is not of its column's type.
    """
    dtype = prediction_dtype(len(results.class_names))
    types = {
        **RUN_TYPES,
        "predictions": pa.list_(pa.from_numpy_dtype(dtype)),
        "epochs": pa.list_(pa.struct(list(EPOCH_TYPES.items()))),
    }
    epochs = dict(iter(results.epochs.groupby(["cell", "seed"], sort=False)))
    empty = results.epochs.iloc[:0]
    columns: dict[str, list[Any]] = {name: _plain_column(results.runs[name]) for name in RUN_TYPES}
    columns["predictions"] = [np.asarray(row, dtype=dtype) for row in results.runs["predictions"]]
    columns["epochs"] = [
        _plain_rows(epochs.get(run, empty), EPOCH_TYPES)
        for run in zip(results.runs["cell"], results.runs["seed"], strict=True)
    ]
    facts = {
        "format": FORMAT,
        "name": results.name,
        "class_names": list(results.class_names),
        "labels": results.labels.tolist(),
        "cost": _plain_rows(results.cost, COST_TYPES),
        "planned": {cell: list(seeds) for cell, seeds in results.planned.items()},
    }
    try:
        arrays = [pa.array(columns[name], type=kind, from_pandas=True) for name, kind in types.items()]
        _typed_frame(facts["cost"], COST_TYPES)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"results of study {results.name!r} do not fit the schema: {error}") from error
    schema = pa.schema(list(types.items()), metadata={_KEY: json.dumps(facts)})
    table = pa.Table.from_arrays(arrays, schema=schema)
    write_atomically(path, lambda file: pq.write_table(table, file, compression="zstd"))


def read_results(path: Path | str) -> StudyResults:
    """Read a file that :func:`write_results` wrote.

    Raises:
        ValueError: It is no results file of a study, of another format, or contradicts itself.
        OSError: It cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"results file {path} does not exist")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is no Parquet file: {str(error).splitlines()[0]}") from None
    stored = (table.schema.metadata or {}).get(_KEY)
    if stored is None:
        raise ValueError(f"{path} is a Parquet file, but not the results of a study")
    facts = json.loads(stored)
    if facts["format"] != FORMAT:
        raise ValueError(f"{path} has format {facts['format']}, and this version of the zoo reads format {FORMAT}")
    try:
        _check_types(table.schema)
        runs = table.drop_columns(["epochs"]).to_pandas()
        rows = [
            {"cell": cell, "seed": seed, **epoch}
            for cell, seed, epochs in zip(runs["cell"], runs["seed"], table["epochs"].to_pylist(), strict=True)
            for epoch in epochs
        ]
        return StudyResults(
            name=facts["name"],
            class_names=tuple(facts["class_names"]),
            labels=np.asarray(facts["labels"], dtype=prediction_dtype(len(facts["class_names"]))),
            runs=runs,
            cost=_typed_frame(facts["cost"], COST_TYPES),
            epochs=_typed_frame(rows, {"cell": pa.string(), "seed": pa.int64(), **EPOCH_TYPES}),
            planned=facts.get("planned", {}),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_types(schema: pa.Schema) -> None:
    for name, kind in {**RUN_TYPES, "epochs": pa.list_(pa.struct(list(EPOCH_TYPES.items())))}.items():
        if name not in schema.names:
            raise ValueError(f"the column {name!r} is missing")
        if not schema.field(name).type.equals(kind):
            raise ValueError(f"column {name!r} is of type {schema.field(name).type}, not {kind}")
    if "predictions" not in schema.names or not pa.types.is_list(schema.field("predictions").type):
        raise ValueError("the column 'predictions', a list per run, is missing")


def empty_cost() -> pd.DataFrame:
    """Return the cost table of a study whose cost was not measured."""
    return cost_table([])


def cost_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the cost table of a study, a row per cell with the columns of ``COST_TYPES``."""
    return _typed_frame([dict(row) for row in rows], COST_TYPES)


def _typed_frame(rows: Sequence[dict[str, Any]], types: dict[str, pa.DataType]) -> pd.DataFrame:
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(types.items()))).to_pandas()


def _plain_column(column: pd.Series) -> list[Any]:
    return [None if pd.isna(value) else value for value in column.tolist()]


def _plain_rows(frame: pd.DataFrame, columns: Iterable[str]) -> list[dict[str, Any]]:
    plain = {name: _plain_column(frame[name]) for name in columns}
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]
