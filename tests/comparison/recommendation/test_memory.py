"""The plan survives an interruption, and a folder answers one request only."""

import dataclasses

import pytest

from zoo.comparison.choices import Choice
from zoo.comparison.recommendation.answer import Request
from zoo.comparison.recommendation.memory import Memory
from zoo.comparison.recommendation.planning import Pace, TrialPlan
from zoo.comparison.recommendation.price import Price, Ratio


@pytest.fixture
def request_(tmp_path):
    return Request(
        data=Choice("cluttered_digits", {"clutter": 2}), model=Choice("resnet20"), folder=tmp_path / "folder",
        recipe={"optimization": {"peak_lr": 0.05}},
    )  # fmt: skip


def test_what_was_planned_and_used_is_recalled(request_):
    memory = Memory(request_)
    assert memory.recall_plan() is None
    assert memory.recall_prices() is None
    assert memory.used_s == 0
    plan = TrialPlan(7, (3, 5)), Pace(1.5, {"none": 2.0, "se": 3.0}, 40)
    prices = {"none": Price(10, 20, 1.5, Ratio(1.0, 1.0, 1.0), 4.0, Ratio(1.0, 1.0, 1.0))}
    memory.keep_plan(*plan)
    memory.keep_prices(prices)
    memory.used_s = 61.25
    again = Memory(request_)
    assert again.recall_plan() == plan
    assert again.recall_prices() == prices
    assert again.used_s == pytest.approx(61.2, abs=0.1)


def test_more_budget_may_be_asked_for(request_):
    Memory(request_).keep_plan(TrialPlan(7, (3,)), Pace(1.0, {"none": 2.0}, 40))
    assert Memory(dataclasses.replace(request_, budget_minutes=90)).recall_plan() is not None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"model": Choice("resnet32")}, "model"),
        ({"data": Choice("cluttered_digits")}, "data"),
        ({"latency_budget_percent": 5.0}, "latency_budget_percent"),
        ({"margin_points": 1.0}, "margin_points"),
        ({"recipe": {}}, "recipe"),
    ],
)
def test_another_request_in_the_same_folder_is_refused(request_, change, name):
    Memory(request_).used_s = 1.0
    with pytest.raises(ValueError, match=f"holds a recommendation with another {name}.*--folder"):
        Memory(dataclasses.replace(request_, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget_minutes": 0}, "budget_minutes"),
        ({"budget_minutes": float("nan")}, "budget_minutes"),
        ({"margin_points": -1}, "margin_points"),
        ({"latency_budget_percent": -1}, "latency_budget_percent"),
        ({"recipe": {"trainer": {"max_epochs": 3}}}, "the budget decides how long runs are"),
    ],
)
def test_requests_that_make_no_sense_are_refused(request_, change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(request_, **change)
