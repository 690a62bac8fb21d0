"""What is recommended follows from the intervals, and "no difference worth its price" is an answer."""

import pytest

from zoo.comparison.recommendation.decision import Contrast, choose
from zoo.comparison.recommendation.sequential import Interval

MARGIN = 0.005


def contrast(net, base, low, high):
    interval = Interval((low + high) / 2, low, high, 0.98, 5, 400)
    return Contrast(net, base, interval, interval.verdict(MARGIN), None)


def contrasts(**intervals):
    return {tuple(names.split("_")): contrast(*names.split("_"), low, high) for names, (low, high) in intervals.items()}


@pytest.mark.parametrize(
    ("intervals", "net", "confidence"),
    [
        ({"se_none": (0.01, 0.03), "cbam_none": (-0.01, 0.02), "cbam_se": (-0.03, 0.01)}, "se", "shown"),
        ({"se_none": (-0.01, 0.02), "cbam_none": (0.02, 0.05), "cbam_se": (0.0, 0.05)}, "cbam", "shown"),
        # Both gain: the cheaper one, unless the dearer one is shown to gain over it.
        ({"se_none": (0.01, 0.03), "cbam_none": (0.01, 0.05), "cbam_se": (-0.01, 0.03)}, "se", "shown"),
        ({"se_none": (0.01, 0.03), "cbam_none": (0.06, 0.09), "cbam_se": (0.03, 0.07)}, "cbam", "shown"),
        # A gain that is real and too small.
        ({"se_none": (0.001, 0.004), "cbam_none": (-0.001, 0.002), "cbam_se": (-0.004, 0.0)}, "none", "shown"),
        ({"se_none": (-0.004, 0.004), "cbam_none": (-0.05, -0.02), "cbam_se": (-0.05, -0.02)}, "none", "shown"),
        ({"se_none": (-0.01, 0.03), "cbam_none": (-0.05, -0.02), "cbam_se": (-0.06, 0.0)}, "none", "not shown"),
    ],
)
def test_the_recommendation_follows_from_the_intervals(intervals, net, confidence):
    decision = choose(["se", "cbam"], contrasts(**intervals), MARGIN)
    assert (decision.net, decision.confidence) == (net, confidence)
    assert decision.reason


def test_without_a_gate_there_is_nothing_to_recommend():
    decision = choose([], {}, MARGIN)
    assert (decision.net, decision.confidence) == ("none", "not tried")


def test_no_difference_worth_its_price_is_said_with_its_interval():
    decision = choose(["se"], contrasts(se_none=(-0.004, 0.002)), MARGIN)
    assert decision.reason == (
        "no difference worth its price: se has no gain over none that is worth its price: "
        "-0.1 points (-0.4 to +0.2; 5 seeds, 400 images)"
    )


def test_a_shown_loss_is_not_called_no_difference():
    decision = choose(["se"], contrasts(se_none=(-0.12, -0.04)), MARGIN)
    assert (decision.net, decision.confidence) == ("none", "shown")
    assert decision.reason.startswith("no gain worth its price: se loses against none: ")
