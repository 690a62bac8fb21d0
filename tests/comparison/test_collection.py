import numpy as np
import pytest

from zoo.comparison.choices import parse_choices
from zoo.comparison.collection import collect, read_data
from zoo.comparison.results import read_results, write_results
from zoo.comparison.study import Study

TINY = {"data": {"num_images": 60, "image_size": 16, "digit_size": 12, "batch_size": 16}}


def make_study(data="cluttered_digits", seeds=(0, 1)):
    return Study("toy", parse_choices("resnet20"), parse_choices("none,se"), parse_choices(data), seeds, TINY)


def test_finished_runs_become_rows_with_each_answer_and_each_epoch(finish, tmp_path):
    plans = make_study().plans(tmp_path / "runs")
    data = read_data(plans)
    assert len(data.labels) == 10
    for seed, plan in enumerate(plans[:3]):
        finish(plan, np.roll(data.labels, seed), data.class_names, data.labels)
    write_results(collect("toy", plans, data), tmp_path / "toy.parquet")
    results = read_results(tmp_path / "toy.parquet")
    assert results.runs["cell"].tolist() == ["resnet20+none", "resnet20+se", "resnet20+none"]
    assert results.runs["seed"].tolist() == [0, 0, 1]
    row = results.runs.iloc[0]
    assert (row.selected_epoch, row.selected_top1, row.last_epoch, row.last_top1) == (2, 1.0, 3, 0.5)
    assert (row.validation_top1, row.parameters, row.macs, row.commit, row.dirty) == (0.6, 5, 6, "abc", True)
    np.testing.assert_array_equal(results.runs["predictions"][1], np.roll(data.labels, 1))
    assert results.epochs[["epoch", "train_loss"]].iloc[:2].to_numpy().tolist() == [[1, 2.0], [2, 1.5]]
    assert results.epochs["val_top1"].isna().tolist() == [False, True] * 3
    stored = "".join([row.config, row.command])
    assert str(tmp_path) not in stored
    assert "max_epochs" in stored


def test_a_study_of_which_nothing_is_finished_has_no_results(tmp_path):
    plans = make_study().plans(tmp_path)
    with pytest.raises(ValueError, match="no run of study 'toy' is finished"):
        collect("toy", plans, read_data(plans))


def test_an_answer_that_is_no_class_is_refused(finish, tmp_path):
    plans = make_study().plans(tmp_path)
    data = read_data(plans)
    names = ["zero", *data.class_names[1:]]
    finish(plans[0], data.labels, names, data.labels)
    with pytest.raises(ValueError, match="answers 'zero', which is no class"):
        collect("toy", plans, data)


def test_variants_of_one_data_set_are_read_once_each_and_told_apart(tmp_path):
    plans = make_study("cluttered_digits(clutter=0), cluttered_digits(clutter=2)").plans(tmp_path)
    data = read_data(plans)
    assert len({data.digest(plan) for plan in plans}) == 2
    assert set(data.shapes.values()) == {((3, 16, 16), 10)}


def test_data_whose_test_labels_differ_cannot_be_paired(tmp_path):
    plans = make_study("cluttered_digits, cluttered_digits(seed=1)").plans(tmp_path)
    with pytest.raises(ValueError, match="differ in their labels of the test images; make a study of each"):
        read_data(plans)
