"""The rule keeps its promise: simulated nets without any difference are seldom told apart, whatever the looks."""

import numpy as np
import pytest

from zoo.comparison.recommendation.sequential import (
    Interval,
    SequentialRule,
    accuracy_differences,
    paired_interval,
    plan_looks,
    seeds_to_exclude_zero,
)


def simulate(generator, *, seeds, images, seed_spread, gain=0.0):
    """Answers of two nets to the same images: images differ in difficulty, seeds in luck, one net may be better."""
    difficulty = generator.normal(0, 1.2, images)
    gate = generator.normal(gain, 0.6, images) + generator.normal(0, seed_spread, (seeds, 1))
    # The gate's own spread is in the plain net's too, so that without gain both have the same accuracy.
    other = generator.normal(0, 0.6, images) + generator.normal(0, seed_spread, (seeds, 1))
    plain = generator.normal(0, 0.7, (seeds, images)) + difficulty + other + 0.7 > 0
    gated = generator.normal(0, 0.7, (seeds, images)) + difficulty + gate + 0.7 > 0
    return accuracy_differences(gated, plain)


@pytest.mark.parametrize("seed_spread", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("images", [100, 1000])
def test_without_a_difference_zero_is_seldom_excluded_at_any_look(seed_spread, images):
    rule = SequentialRule((3, 5, 8), num_contrasts=1)
    generator = np.random.default_rng(1)
    wrong = 0
    for _ in range(200):
        differences = simulate(generator, seeds=8, images=images, seed_spread=seed_spread)
        intervals = [rule.interval(differences[:count], look) for look, count in enumerate(rule.looks)]
        wrong += any(interval.low > 0 or interval.high < 0 for interval in intervals)
    # 5 % are allowed; 18 or more of 200 would occur in less than 2 % of such tests.
    assert wrong <= 17


def test_looking_at_every_seed_without_a_rule_does_err_often():
    """What the rule is for: the same data, an ordinary 95 % interval at every look."""
    generator = np.random.default_rng(1)
    wrong = 0
    for _ in range(100):
        differences = simulate(generator, seeds=12, images=2000, seed_spread=0.5)
        means = differences.mean(axis=1)
        for count in range(2, 13):
            half = 2 * means[:count].std(ddof=1) / np.sqrt(count)
            if abs(means[:count].mean()) > half:
                wrong += 1
                break
    assert wrong > 20


def test_a_large_gain_is_found():
    rule = SequentialRule((3, 5), num_contrasts=3)
    differences = simulate(np.random.default_rng(0), seeds=5, images=400, seed_spread=0.05, gain=1.0)
    interval = rule.interval(differences, 1)
    assert interval.verdict(0.005) == "gain"
    assert interval.mean == pytest.approx(differences.mean())


@pytest.mark.parametrize("looks", [(3,), (3, 5), (3, 5, 8, 12)])
@pytest.mark.parametrize("contrasts", [1, 3])
def test_all_looks_and_contrasts_together_spend_the_whole_error_and_no_more(looks, contrasts):
    rule = SequentialRule(looks, contrasts, level=0.9)
    spent = [contrasts * rule.error_at(look) for look in range(len(looks))]
    assert sum(spent) == pytest.approx(0.1)
    assert all(share > 0 for share in spent)


def test_few_images_without_any_disagreement_prove_nothing():
    """Three seeds that agree on all of 50 images: the difference may still be more than a margin of one point."""
    interval = paired_interval(np.zeros((3, 50), dtype=np.int8), 0.05)
    assert interval.mean == 0
    assert interval.verdict(0.01) == "open"
    assert paired_interval(np.zeros((3, 5000), dtype=np.int8), 0.05).verdict(0.01) == "no gain worth its price"


def test_the_interval_widens_with_the_spread_of_seeds_and_with_that_of_images():
    calm = np.zeros((4, 100), dtype=np.int8)
    restless_seeds = calm.copy()
    restless_seeds[0, :10], restless_seeds[1, :10] = 1, -1
    restless_images = calm.copy()
    restless_images[:, :10], restless_images[:, 10:20] = 1, -1
    widths = [np.ptp([paired_interval(d, 0.05).low, paired_interval(d, 0.05).high]) for d in
              (calm, restless_seeds, restless_images)]  # fmt: skip
    assert widths[0] < widths[1]
    assert widths[0] < widths[2]


@pytest.mark.parametrize(
    ("low", "high", "margin", "verdict"),
    [
        (0.001, 0.02, 0.005, "gain"),
        (0.001, 0.007, 0.005, "gain, perhaps too small"),
        (0.001, 0.004, 0.005, "gain"),
        (-0.02, -0.001, 0.005, "loss"),
        (-0.004, 0.004, 0.005, "no gain worth its price"),
        (-0.3, 0.004, 0.005, "no gain worth its price"),
        (-0.004, 0.006, 0.005, "open"),
    ],
)
def test_verdicts(low, high, margin, verdict):
    assert Interval((low + high) / 2, low, high, 0.95, 3, 100).verdict(margin) == verdict


def test_seeds_needed_are_enough_and_no_fewer_would_be():
    differences = simulate(np.random.default_rng(3), seeds=3, images=3000, seed_spread=0.3, gain=0.5)
    needed = seeds_to_exclude_zero(differences, 0.05)
    assert needed is not None
    assert needed > 3
    assert paired_interval(differences, 0.05).verdict(0.005) == "open"
    assert seeds_to_exclude_zero(differences, 0.05, limit=needed - 1) is None


def test_no_number_of_seeds_helps_where_the_images_leave_it_open():
    differences = np.zeros((3, 40), dtype=np.int8)
    differences[:, 0] = 1
    assert seeds_to_exclude_zero(differences, 0.05) is None


def test_time_may_run_out_before_a_look_but_not_give_more_seeds_than_planned():
    rule = SequentialRule((3, 5), 1)
    differences = simulate(np.random.default_rng(0), seeds=5, images=50, seed_spread=0.1)
    assert rule.interval(differences[:4], 1).num_seeds == 4
    with pytest.raises(ValueError, match="5 seeds are more than the 3 planned"):
        rule.interval(differences, 0)
    with pytest.raises(ValueError, match="look 2 must be one of 0 to 1"):
        rule.interval(differences, 2)


@pytest.mark.parametrize(
    ("looks", "contrasts", "level", "message"),
    [
        ((), 1, 0.95, "rising numbers"),
        ((1, 3), 1, 0.95, "rising numbers"),
        ((3, 3), 1, 0.95, "rising numbers"),
        ((3,), 0, 0.95, "num_contrasts"),
        ((3,), 1, 1.0, "level"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(looks, contrasts, level, message):
    with pytest.raises(ValueError, match=message):
        SequentialRule(looks, contrasts, level)


def test_differences_pair_runs_of_the_same_seeds():
    gated, plain = [np.array([True, False])], [np.array([False, True])]
    assert accuracy_differences(gated, plain).tolist() == [[1, -1]]
    with pytest.raises(ValueError, match="must be"):
        accuracy_differences(gated, plain * 2)


def test_too_few_seeds_or_images_have_no_interval():
    for shape in ((1, 50), (3, 1)):
        with pytest.raises(ValueError, match="at least 2 and 2"):
            paired_interval(np.zeros(shape), 0.05)


def test_too_few_seeds_for_a_first_look_are_refused():
    with pytest.raises(ValueError, match="at least 3"):
        plan_looks(2)
    assert all(plan_looks(count)[-1] == count for count in range(3, 20))
