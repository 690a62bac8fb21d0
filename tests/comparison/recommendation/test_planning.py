"""The budget holds by plan: what is planned takes no longer than what is left."""

import pytest

from zoo.comparison.recommendation.planning import (
    FIRST_LOOK,
    MAX_EPOCHS,
    MAX_SEEDS,
    MIN_EPOCHS,
    SAFETY,
    Pace,
    plan_trials,
)

PACE = Pace(overhead_s=10.0, epoch_s={"none": 5.0, "se": 6.0, "cbam": 9.0}, steps_per_epoch=400)


def seconds(plan, pace):
    return plan.looks[-1] * sum(pace.run_seconds(net, plan.epochs) for net in pace.epoch_s)


@pytest.mark.parametrize("minutes", [6, 10, 20, 33, 60, 200, 5000])
@pytest.mark.parametrize("steps", [10, 400])
def test_all_planned_runs_fit_into_the_budget_with_a_reserve(minutes, steps):
    pace = Pace(PACE.overhead_s, PACE.epoch_s, steps)
    plan = plan_trials(60 * minutes, pace)
    assert seconds(plan, pace) <= SAFETY * 60 * minutes
    assert plan.looks[0] == FIRST_LOOK
    assert plan.epochs >= MIN_EPOCHS


def test_more_budget_buys_longer_runs_first_and_then_seeds():
    plans = [plan_trials(60 * minutes, PACE) for minutes in (6, 20, 35, 60, 120, 5000)]
    assert [plan.epochs for plan in plans] == sorted(plan.epochs for plan in plans)
    assert plans[-1].epochs == MAX_EPOCHS
    assert [plan.looks[-1] for plan in plans] == sorted(plan.looks[-1] for plan in plans)
    assert plans[-1].looks[-1] == MAX_SEEDS


def test_runs_that_would_be_very_short_are_made_longer_before_there_are_more_seeds_than_three():
    """Twelve steps an epoch: 25 epochs are needed for five seeds."""
    few = Pace(10.0, {"none": 1.0, "se": 1.0}, steps_per_epoch=12)
    short, long = plan_trials(4 * 60, few), plan_trials(8 * 60, few)
    assert short.looks == (3,)
    assert short.epochs == int((SAFETY * 240 / 3 - 20) / 2)
    assert long.epochs >= 25
    assert long.looks == (3, 5)


def test_on_few_images_runs_may_have_more_epochs():
    small = Pace(PACE.overhead_s, PACE.epoch_s, steps_per_epoch=30)
    assert plan_trials(5000 * 60, small).epochs == 50  # 1500 steps


def test_a_budget_that_is_too_short_is_refused_with_the_minutes_it_takes():
    with pytest.raises(
        ValueError, match=r"3 seeds of 3 nets at 3 epochs take 5\.3 minutes here, but 5\.0 are left"
    ) as e:
        plan_trials(300, PACE)
    assert "--budget" in str(e.value)
    assert plan_trials(5.4 * 60, PACE).epochs == MIN_EPOCHS
