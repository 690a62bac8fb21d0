import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zoo.comparison.results import (
    COST_TYPES,
    EPOCH_TYPES,
    RUN_TYPES,
    StudyResults,
    empty_cost,
    read_results,
    write_results,
)

LABELS = np.array([0, 1, 2, 1], dtype=np.uint8)


def run_row(cell="resnet20+se", seed=0, **changes):
    values = {
        name: {"string": "x", "int64": 3, "double": 0.5, "bool": True}[str(kind)] for name, kind in RUN_TYPES.items()
    }
    model, attention = cell.split("+")
    values |= {"cell": cell, "model": model, "attention": attention, "seed": seed}
    predictions = changes.pop("predictions", np.array([0, 1, 1, 2], dtype=np.uint8))
    top1 = float(np.mean(predictions == LABELS)) if len(predictions) == len(LABELS) else 0.5
    return values | {"selected_top1": top1, "predictions": predictions} | changes


def cost_row(cell="resnet20+se", **changes):
    values = {name: {"string": "x", "int64": 3, "double": 1.5}[str(kind)] for name, kind in COST_TYPES.items()}
    return values | {"cell": cell} | changes


def results(rows=None, *, cost=None, epochs=(), class_names=("cat", "dog", "owl")):
    rows = [run_row("resnet20+none"), run_row(seed=1), run_row(seed=0)] if rows is None else rows
    return StudyResults(
        name="toy",
        class_names=tuple(class_names),
        labels=LABELS,
        runs=pd.DataFrame(rows),
        cost=empty_cost() if cost is None else pd.DataFrame(cost),
        epochs=pd.DataFrame(epochs, columns=["cell", "seed", *EPOCH_TYPES]),
    )


def test_what_is_written_is_read_back(tmp_path):
    epochs = [("resnet20+se", 1, 1, 2.0, 0.1, 2.1, 0.2), ("resnet20+se", 1, 2, 1.0, 0.4, float("nan"), float("nan"))]
    rows = [run_row("resnet20+none"), run_row(seed=1, commit=None, dirty=None, validation_top1=float("nan"))]
    written = results(rows, cost=[cost_row("resnet20+none"), cost_row()], epochs=epochs)
    write_results(written, tmp_path / "toy.parquet")
    read = read_results(tmp_path / "toy.parquet")
    assert (read.name, read.class_names) == ("toy", ("cat", "dog", "owl"))
    np.testing.assert_array_equal(read.labels, LABELS)
    assert [array.tolist() for array in read.runs["predictions"]] == [[0, 1, 1, 2], [0, 1, 1, 2]]
    assert read.runs["predictions"][0].dtype == np.uint8
    for table in ("runs", "cost", "epochs"):
        expected, found = getattr(written, table), getattr(read, table)
        pd.testing.assert_frame_equal(
            found.drop(columns="predictions", errors="ignore"),
            expected.drop(columns="predictions", errors="ignore"),
            check_dtype=False,
        )


def test_equal_results_give_equal_bytes_and_a_table_without_rows_keeps_its_columns(tmp_path):
    for name in ("first", "second"):
        write_results(results(), tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    read = read_results(tmp_path / "first")
    assert list(read.cost.columns) == list(COST_TYPES)
    assert len(read.cost) == len(read.epochs) == 0


def test_more_classes_than_a_byte_holds_are_kept(tmp_path):
    predictions = np.array([0, 1, 2, 999], dtype=np.uint16)
    names = [f"class {number}" for number in range(1000)]
    write_results(results([run_row(predictions=predictions)], class_names=names), tmp_path / "many.parquet")
    assert read_results(tmp_path / "many.parquet").runs["predictions"][0].tolist() == [0, 1, 2, 999]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([run_row(), run_row()], "'resnet20\\+se' with seed 0 stands twice"),
        ([run_row(predictions=np.array([0, 1], dtype=np.uint8))], "has 2 predictions, but there are 4 test images"),
        ([run_row(predictions=np.array([0, 1, 1, 3], dtype=np.uint8))], "none of the 3 classes"),
        ([run_row(selected_top1=0.75)], "states selected_top1 0.750000, but its predictions give 0.500000"),
        ([{**run_row(), "note": 1}], "have unknown note"),
        ([{key: value for key, value in run_row().items() if key != "macs"}], "the columns of runs lack macs"),
        ([run_row(), run_row(seed=1, model="resnet56")], "names more than one thing"),
        ([run_row(nll=float("nan"))], "column 'nll' has rows without a value"),
    ],
)
def test_runs_that_contradict_themselves_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        results(rows)


def test_epochs_and_cost_belong_to_the_runs():
    with pytest.raises(ValueError, match="epochs hold 'resnet20\\+eca' with seed 0, of which there is no run"):
        results(epochs=[("resnet20+eca", 0, 1, 1.0, 0.1, 1.0, 0.1)])
    with pytest.raises(ValueError, match="the cost of 'resnet20\\+se' stands twice"):
        results(cost=[cost_row(), cost_row()])


def test_a_value_of_another_type_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="do not fit the schema"):
        write_results(results([run_row(precision=7)]), tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_refused_by_name(tmp_path):
    path = tmp_path / "x.parquet"
    with pytest.raises(ValueError, match=r"x\.parquet does not exist"):
        read_results(path)
    path.write_text("cell,seed\n")
    with pytest.raises(ValueError, match=r"x\.parquet is no Parquet file"):
        read_results(path)
    pq.write_table(pa.table({"cell": ["a"]}), path)
    with pytest.raises(ValueError, match="not the results of a study"):
        read_results(path)


def rewrite(path, change):
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def test_a_changed_schema_or_format_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    write_results(results(), path)
    rewrite(path, lambda table: table.drop_columns(["nll"]))
    with pytest.raises(ValueError, match="the column 'nll' is missing"):
        read_results(path)
    write_results(results(), path)
    rewrite(path, lambda table: table.set_column(4, "seed", pa.array(["0", "1", "2"])))
    with pytest.raises(ValueError, match="column 'seed' is of type string, not int64"):
        read_results(path)
    write_results(results(), path)

    def older(table):
        facts = json.loads(table.schema.metadata[b"zoo_study"]) | {"format": 0}
        return table.replace_schema_metadata({b"zoo_study": json.dumps(facts)})

    rewrite(path, older)
    with pytest.raises(ValueError, match="has format 0, and this version of the zoo reads format 1"):
        read_results(path)
