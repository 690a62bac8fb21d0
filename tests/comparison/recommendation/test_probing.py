"""The pace that runs are planned by."""

from types import SimpleNamespace

import pytest
import torch

from zoo.comparison.choices import Choice
from zoo.comparison.engines.local import Outcome
from zoo.comparison.recommendation import probing
from zoo.comparison.recommendation.answer import Request
from zoo.comparison.recommendation.price import Price, Ratio


def price(step: float) -> Price:
    same = Ratio(1.0, 1.0, 1.0)
    return Price(10, 20, 1.0, same, 100.0, Ratio(step, step, step))


def test_the_first_epoch_in_which_kernels_are_made_ready_is_not_taken_for_the_pace(tmp_path, monkeypatch):
    """Of 8 steps 9 s in the first epoch and 1 s in the second: an epoch of 40 steps takes 5 s, not 45."""

    def run_all(plans, *, monitor):
        (plan,) = plans
        assert plan.config.trainer["limit_train_batches"] == 8
        plan.run.path.mkdir(parents=True)
        plan.run.result.write_text("{}")
        plan.run.epochs.write_text("epoch,train_seconds\n1,9.0\n2,1.0\n")
        return [Outcome(plan, 0, 20.0)]

    monkeypatch.setattr(probing, "run_all", run_all)
    monkeypatch.setattr(probing, "load_last_epoch", lambda plan, data: None)
    monkeypatch.setattr(probing, "judge", lambda *_: None)
    request = Request(data=Choice("cluttered_digits"), model=Choice("resnet20"), folder=tmp_path)
    data = SimpleNamespace(create_sampler=lambda split: range(40))
    place = probing.Workplace(request, data, torch.device("cpu"))
    prices = {"none": price(1.0), "se": price(1.5)}
    monkeypatch.setattr(probing, "_PROBE_SECONDS", 0.8)  # eight steps of 100 ms

    pace = place.measure_pace(["none", "se"], prices, clock=None)

    assert pace.steps_per_epoch == 40
    assert pace.epoch_s == pytest.approx({"none": 5.0, "se": 7.5}, abs=0.01)
    assert pace.overhead_s == pytest.approx(18.0, abs=0.01)
