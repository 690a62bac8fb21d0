"""Prices are ratios within a round, and name what was measured."""

import pytest

from zoo.comparison.choices import Choice
from zoo.comparison.collection import ImageShape
from zoo.comparison.recommendation import price as module
from zoo.comparison.recommendation.price import Ratio, measure_prices
from zoo.comparison.recommendation.procedure import GATES
from zoo.comparison.recommendation.trials import create_study

SHAPE = ImageShape((3, 8, 8), 10)


def configs(*, batch_size=2):
    study = create_study(
        Choice("resnet20", {"width_multiplier": 0.25}), GATES, Choice("cluttered_digits", {"batch_size": batch_size}),
        recipe={"trainer": {"precision": "32-true"}}, epochs=1, seeds=1,
    )  # fmt: skip
    return {plan.config.model["attention"]: plan.config for plan in study.plans("unused")}


def test_the_plain_net_costs_itself_and_a_gate_adds_what_it_has():
    prices = measure_prices(configs(), SHAPE, num_threads=1, rounds=2)
    assert list(prices) == ["none", "se", "cbam"]
    assert prices["none"].latency == prices["none"].training == Ratio(1.0, 1.0, 1.0)
    assert prices["none"].parameters < prices["se"].parameters < prices["cbam"].parameters
    assert prices["none"].macs < prices["cbam"].macs
    for price in prices.values():
        assert price.latency.low <= price.latency.median <= price.latency.high
        assert price.step_ms > 0
        assert price.latency_ms > 0


def test_a_machine_that_slows_down_moves_no_ratio(monkeypatch):
    """Every round is twice as slow as the one before; a gate always takes half as long again."""
    calls = []

    class Net:
        device = "cpu"

        def __init__(self, config, shape):
            self.factor = 1.0 if config.model["attention"] == "none" else 1.5

        def step_ms(self, threads):
            calls.append(self)
            return self.factor * 2.0 ** ((len(calls) - 1) // 3)

    class Timing:
        median_ms = 2.0

    monkeypatch.setattr(module, "MeasuredNet", Net)
    monkeypatch.setattr(module, "measure_latency", lambda *_, **__: [Timing()])
    prices = measure_prices(configs(), SHAPE, num_threads=1, rounds=3)
    assert prices["se"].training == Ratio(1.5, 1.5, 1.5)
    assert prices["se"].training.percent == pytest.approx(50)
    assert prices["cbam"].latency == Ratio(1.0, 1.0, 1.0)
    assert len(calls) == 3 * 4  # a first round warms up
