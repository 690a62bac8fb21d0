"""Cells beside their plain nets: pairing, corrections, sentences, and studies that are not complete."""

import dataclasses

import numpy as np
import pytest

from zoo.comparison.results import read_results, write_results
from zoo.comparison.statistics import paired_difference
from zoo.comparison.summary import contrast, judge, summarize

ACCURACY = {"none": 0.8, "se": 0.8, "cbam": 0.9}


def cell(summary, attention, model="resnet20"):
    (found,) = [cell for cell in summary.cells if (cell.attention, cell.model) == (attention, model)]
    return found


def test_differences_are_paired_by_seed(make_results):
    results = make_results(ACCURACY)
    summary = summarize(results)
    runs = results.runs.set_index(["attention", "seed"])["selected_top1"]
    expected = [runs["cbam", seed] - runs["none", seed] for seed in (0, 1, 2)]
    assert cell(summary, "cbam").comparison.difference == paired_difference(expected)
    assert cell(summary, "cbam").top1.mean == pytest.approx(np.mean([runs["cbam", seed] for seed in (0, 1, 2)]))
    assert cell(summary, "none").comparison is None
    assert cell(summary, "cbam").cost["latency_ratio_batch1"] == pytest.approx(1.2)


def test_each_cell_is_compared_within_its_model_and_data(make_results):
    results = make_results({"none": 0.7, "se": 0.8}, models=("a", "b"), data=("x", "y"))
    summary = summarize(results)
    assert [cell.attention for cell in summary.cells] == ["none", "se"] * 4
    for found in summary.cells[1::2]:
        same = results.runs[(results.runs["model"] == found.model) & (results.runs["data"] == found.data)]
        means = same.groupby("attention")["selected_top1"].mean()
        assert found.comparison.difference.mean == pytest.approx(means["se"] - means["none"])


def test_holm_corrects_over_the_whole_table(make_results):
    alone = cell(summarize(make_results({"none": 0.8, "cbam": 0.9})), "cbam").comparison
    assert alone.adjusted_p == pytest.approx(alone.difference.p_value)
    four = summarize(make_results({"none": 0.8, "a": 0.8, "b": 0.8, "c": 0.8, "cbam": 0.9}))
    of_cbam = cell(four, "cbam").comparison
    assert of_cbam.adjusted_p == pytest.approx(4 * of_cbam.difference.p_value)


def test_seeds_that_one_side_lacks_are_left_out_and_said(make_results):
    summary = summarize(make_results(ACCURACY, missing={("resnet20", "se", 1), ("resnet20", "none", 2)}))
    assert cell(summary, "se").comparison.seeds == (0,)
    assert cell(summary, "se").comparison.verdict.startswith("one seed (")
    assert cell(summary, "cbam").comparison.seeds == (0, 1)
    assert "resnet20+se lacks seed 1." in summary.remarks
    assert "resnet20+none lacks seed 2." in summary.remarks


def test_what_a_study_asks_for_and_no_run_has_is_said_after_the_file_too(make_results, tmp_path):
    planned = {f"resnet20+{attention}": [0, 1, 2, 3] for attention in (*ACCURACY, "sam")}
    write_results(dataclasses.replace(make_results(ACCURACY), planned=planned), tmp_path / "toy.parquet")
    remarks = summarize(read_results(tmp_path / "toy.parquet")).remarks
    assert "resnet20+se lacks seed 3." in remarks
    assert "resnet20+sam lacks seeds 0, 1, 2, 3." in remarks


def test_a_cell_without_a_plain_net_is_said_to_have_nothing_to_compare(make_results):
    everything = {("resnet20", "none", seed) for seed in (0, 1, 2)}
    summary = summarize(make_results({"none": 0.8, "se": 0.8}, missing=everything, cost=False))
    assert cell(summary, "se").comparison is None
    assert any("nothing to compare" in remark for remark in summary.remarks)


def test_code_and_data_that_differ_are_said(make_results):
    results = make_results({"none": 0.8, "se": 0.8})
    assert summarize(results).remarks == ()
    results.runs.loc[0, "code_digest"] = "e" * 64
    results.runs.loc[1, "data_digest"] = "f" * 64
    remarks = " ".join(summarize(results).remarks)
    assert "different versions of the code" in remarks
    assert "saw different data" in remarks


def test_a_contrast_of_four_cells_is_a_difference_of_gains_paired_by_seed(make_results):
    results = make_results({"none": 0.7, "se": 0.8}, models=("a", "b"), missing={("b", "se", 1)})
    top1 = results.runs.set_index(["cell", "seed"])["selected_top1"]
    expected = [top1["a+se", s] - top1["a+none", s] - top1["b+se", s] + top1["b+none", s] for s in (0, 2)]
    found = contrast(results, {"a+se": 1, "a+none": -1, "b+se": -1, "b+none": 1})
    assert (found.num_seeds, found.mean) == (2, pytest.approx(np.mean(expected)))
    assert found.std == pytest.approx(np.std(expected, ddof=1))


def test_a_contrast_of_two_cells_is_the_difference_of_the_table(make_results):
    results = make_results(ACCURACY)
    found = contrast(results, {"resnet20+cbam": 1, "resnet20+none": -1})
    assert found == cell(summarize(results), "cbam").comparison.difference


def test_a_contrast_without_a_common_seed_says_nothing(make_results):
    results = make_results(ACCURACY, missing={("resnet20", "se", 0), ("resnet20", "none", 1), ("resnet20", "none", 2)})
    assert contrast(results, {"resnet20+se": 1, "resnet20+none": -1}) is None


def test_a_contrast_of_unknown_cells_or_of_lopsided_weights_is_refused(make_results):
    results = make_results(ACCURACY)
    with pytest.raises(ValueError, match=r"has no cell 'resnet20\+eca'. It has: resnet20\+"):
        contrast(results, {"resnet20+eca": 1, "resnet20+none": -1})
    with pytest.raises(ValueError, match="sum to 0"):
        contrast(results, {"resnet20+se": 1})


def test_an_empty_study_is_refused(make_results):
    results = make_results({"none": 0.8}, cost=False)
    object.__setattr__(results, "runs", results.runs.iloc[:0])
    with pytest.raises(ValueError, match="no finished run"):
        summarize(results)


@pytest.mark.parametrize(
    ("differences", "adjusted", "expected"),
    [
        ([0.011, 0.010, 0.012], 0.01, "better: +0.85 to +1.35 points, 3 seeds"),
        ([-0.011, -0.010, -0.012], 0.01, "worse: -1.35 to -0.85 points, 3 seeds"),
        ([0.011, 0.010, 0.012], 0.2, "better: +0.85 to +1.35 points, 3 seeds, not after correction for 5 comparisons"),
        ([0.01, -0.01], 1.0, "no difference shown: -12.71 to +12.71 points, 2 seeds"),
    ],
)
def test_the_sentence_follows_the_interval(differences, adjusted, expected):
    assert judge(paired_difference(differences), adjusted, 5, None).startswith(expected)


def test_the_sentence_says_how_many_seeds_would_settle_it():
    assert judge(paired_difference([0.01, 0.02, 0.0]), 0.3, 1, 7).endswith("; about 7 seeds might show +1.00")


def test_nets_that_only_guess_are_named_and_one_that_learned_is_enough(make_results):
    guessing = "No net of resnet20 on toy does better than naming the commonest class, 25.0 % of 400 test images"
    assert any(remark.startswith(guessing) for remark in summarize(make_results({"none": 0.2, "se": 0.25})).remarks)
    assert summarize(make_results({"none": 0.2, "se": 0.5})).remarks == ()
