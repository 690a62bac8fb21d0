import dataclasses

import numpy as np
import pytest

from zoo.comparison.choices import parse_choices
from zoo.comparison.collection import collect, read_data
from zoo.comparison.results import read_results, write_results
from zoo.comparison.reuse import has_row, select_reusable
from zoo.comparison.study import Study

TINY = {"data": {"num_images": 60, "image_size": 16, "digit_size": 12, "batch_size": 16}}


def make_study(attention="none,se", peak_lr=0.1, data="cluttered_digits(clutter=0)"):
    recipe = {**TINY, "optimization": {"peak_lr": peak_lr}}
    return Study("toy", parse_choices("resnet20"), parse_choices(attention), parse_choices(data), (0, 1), recipe)


@pytest.fixture
def earlier(finish, tmp_path):
    """The results of both nets with seed 0, read from their file."""
    plans = make_study().plans(tmp_path / "earlier")[:2]
    data = read_data(plans)
    for plan in plans:
        finish(plan, data.labels, data.class_names, data.labels, data_digest=data.digest(plan))
    write_results(collect("toy", plans, data), tmp_path / "toy.parquet")
    return read_results(tmp_path / "toy.parquet")


def test_rows_of_an_earlier_part_complete_a_study_without_its_folders(finish, earlier, tmp_path):
    plans = make_study().plans(tmp_path / "later")
    data = read_data(plans)
    reusable = select_reusable(earlier, plans, data, "c")
    assert [has_row(reusable, plan) for plan in plans] == [True, True, False, False]
    for plan in plans[2:]:
        finish(plan, np.roll(data.labels, 1), data.class_names, data.labels)
    write_results(collect("toy", plans, data, earlier=reusable), tmp_path / "whole.parquet")
    whole = read_results(tmp_path / "whole.parquet")
    assert whole.runs["seed"].tolist() == [0, 0, 1, 1]
    assert whole.runs["last_top1"].tolist() == [
        0.5,
        0.5,
        *[float(np.mean(np.roll(data.labels, 1) == data.labels)) / 2] * 2,
    ]
    assert whole.epochs["seed"].tolist() == [0] * 4 + [1] * 4


def test_a_part_on_one_data_set_completes_a_study_of_several(earlier, tmp_path):
    plans = make_study(data="cluttered_digits(clutter=0),cluttered_digits(clutter=4)").plans(tmp_path / "later")
    data = read_data(plans)
    reusable = select_reusable(earlier, plans, data, "c")
    titles = [f"resnet20+{attention} @ cluttered_digits(clutter=0)" for attention in ("none", "se")]
    assert reusable.runs["cell"].tolist() == titles
    assert set(reusable.epochs["cell"]) == set(titles)
    assert {plan.cell.title for plan in plans if has_row(reusable, plan)} == set(titles)
    part = collect("toy", [plan for plan in plans if has_row(reusable, plan)], data, earlier=reusable, planned=plans)
    assert part.planned["resnet20+se @ cluttered_digits(clutter=4)"] == [0, 1]


def test_another_recipe_other_code_or_other_data_is_not_reused(earlier, tmp_path):
    plans = make_study().plans(tmp_path / "later")
    data = read_data(plans)
    assert len(select_reusable(earlier, plans, data, "c").runs) == 2
    assert len(select_reusable(earlier, plans, data, "other code").runs) == 0
    changed = dataclasses.replace(data, digests=dict.fromkeys(data.digests, "other"))
    assert len(select_reusable(earlier, plans, changed, "c").runs) == 0
    quicker = make_study(peak_lr=0.2).plans(tmp_path / "later")
    assert len(select_reusable(earlier, quicker, data, "c").runs) == 0
    wider = make_study("none,cbam").plans(tmp_path / "later")
    assert select_reusable(earlier, wider, data, "c").runs["cell"].tolist() == ["resnet20+none"]


def test_results_of_other_test_images_are_refused(earlier, tmp_path):
    plans = make_study().plans(tmp_path / "later")
    data = read_data(plans)
    other = dataclasses.replace(data, labels=np.roll(data.labels, 1))
    with pytest.raises(ValueError, match="of other classes or test images than the plan"):
        select_reusable(earlier, plans, other, "c")
