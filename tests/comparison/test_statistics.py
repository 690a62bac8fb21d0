"""Each figure against scipy, written-out values or a simulation whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from zoo.comparison.statistics import (
    bootstrap_difference,
    holm,
    mcnemar_p_value,
    paired_difference,
    seeds_needed,
)


@pytest.mark.parametrize("differences", [[0.01, -0.02, 0.004], [0.3, 0.31], [-1.0, -2.0, -4.0, 0.5, -1.5]])
def test_the_t_interval_and_its_p_value_are_scipys(differences):
    interval = paired_difference(differences, level=0.9)
    expected = stats.ttest_1samp(differences, 0.0)
    low, high = expected.confidence_interval(0.9)
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))
    assert interval.p_value == pytest.approx(expected.pvalue)
    assert interval.excludes_zero == (expected.pvalue < 0.1)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        interval = paired_difference(generator.normal(0.3, 1.0, size=3).tolist())
        hits += interval.low <= 0.3 <= interval.high
    assert hits / 600 == pytest.approx(0.95, abs=0.03)


def test_one_seed_has_no_interval():
    one = paired_difference([0.02])
    assert (one.mean, one.low, one.high, one.std, one.p_value, one.excludes_zero) == (
        0.02,
        None,
        None,
        None,
        None,
        False,
    )


@pytest.mark.parametrize("differences", [[0.5, 0.5], [0.0, 0.0, 0.0], [0.895 - 0.89, 0.885 - 0.88, 0.905 - 0.9]])
def test_differences_by_the_same_number_of_images_prove_nothing(differences):
    same = paired_difference(differences)
    assert (same.low, same.high, same.std, same.p_value, same.excludes_zero) == (None, None, 0.0, None, False)
    assert same.mean == pytest.approx(differences[0])
    assert seeds_needed(differences) is None


@pytest.mark.parametrize("wrong", [[], [float("nan")], [0.1, float("inf")]])
def test_differences_that_are_no_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="one or more finite numbers"):
        paired_difference(wrong)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_out_of_range_is_refused(level):
    with pytest.raises(ValueError, match="level"):
        paired_difference([0.1, 0.2], level)


def test_the_bootstrap_spreads_over_seeds_and_over_images():
    """Seeds that agree leave the spread of the images; images that agree leave the spread of the seeds."""
    generator = np.random.default_rng(0)
    images = generator.random((1, 2000)) < 0.9
    plain = generator.random((1, 2000)) < 0.85
    low, high = bootstrap_difference(images.repeat(5, 0), plain.repeat(5, 0))
    gain = images.astype(float) - plain
    assert (high - low) / 2 == pytest.approx(1.96 * gain.std() / np.sqrt(2000), rel=0.1)
    assert low < gain.mean() < high
    all_or_none = np.array([[True] * 50, [False] * 50])
    low, high = bootstrap_difference(all_or_none, np.zeros((2, 50), dtype=bool))
    assert (low, high) == (0.0, 1.0)


def test_the_bootstrap_repeats_itself_and_needs_two_seeds():
    generator = np.random.default_rng(1)
    ours, plain = generator.random((2, 3, 100)) < 0.5
    assert bootstrap_difference(ours, plain, seed=3) == bootstrap_difference(ours, plain, seed=3)
    assert bootstrap_difference(ours, plain, seed=3) != bootstrap_difference(ours, plain, seed=4)
    assert bootstrap_difference(ours[:1], plain[:1]) is None
    with pytest.raises(ValueError, match=r"\(3, 100\).*\(2, 100\)"):
        bootstrap_difference(ours, plain[:2])
    with pytest.raises(ValueError, match="num_resamples"):
        bootstrap_difference(ours, plain, num_resamples=10)


def test_mcnemar_is_the_binomial_test_for_few_discordant_images_and_chi_square_for_many():
    both, neither = [True] * 30, [False] * 10
    ours = np.array([*both, *neither, *[True] * 9, *[False] * 3])
    plain = np.array([*both, *neither, *[False] * 9, *[True] * 3])
    assert mcnemar_p_value(ours, plain) == pytest.approx(stats.binomtest(3, 12).pvalue)
    ours, plain = np.array([True] * 60 + [False] * 30), np.array([False] * 60 + [True] * 30)
    assert mcnemar_p_value(ours, plain) == pytest.approx(stats.chi2.sf((60 - 30 - 1) ** 2 / 90, 1))
    assert mcnemar_p_value(ours, ours) == 1.0


def test_holm_against_the_procedure_written_out():
    """Sorted p times the number of hypotheses left, never falling, at most 1; what is untested does not count."""
    assert holm([0.04, 0.001, None, 0.02]) == pytest.approx([0.04, 0.003, None, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([None, None]) == [None, None]


def test_seeds_needed_is_the_first_count_whose_interval_excludes_zero():
    differences = [0.01, 0.02, -0.01, 0.015]
    needed = seeds_needed(differences)
    mean, std = np.mean(differences), np.std(differences, ddof=1)

    def excludes(count):
        return mean > stats.t.ppf(0.975, count - 1) * std / np.sqrt(count)

    assert excludes(needed)
    assert not excludes(needed - 1)
    assert seeds_needed([1e-6, -1e-3, 1e-3]) is None
    assert seeds_needed([0.0, 0.0]) is None
