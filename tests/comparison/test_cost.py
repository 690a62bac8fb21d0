import json

import pytest

from zoo.comparison import cost
from zoo.comparison.choices import parse_choices
from zoo.comparison.collection import ImageShape
from zoo.comparison.cost import MeasuredNet, load_or_measure_cost, measure_cost
from zoo.comparison.study import Study

RECIPE = {"data": {"batch_size": 4}, "trainer": {"precision": "32-true", "accelerator": "cpu"}}
SHAPE = ImageShape((3, 16, 16), 10)


def make_plans(attention="none,se", data="cluttered_digits"):
    models = parse_choices("resnet20(width_multiplier=0.25)")
    return Study("toy", models, parse_choices(attention), parse_choices(data), (0, 1), RECIPE).plans("runs")


@pytest.fixture
def clockwork(monkeypatch):
    """Nets whose times are known; the machine gets slower by a tenth from each measurement to the next."""
    calls = []

    def pace(net):
        calls.append(net)
        return (2.0 if net._system.model.config["attention"] == "se" else 1.0) * 1.1 ** len(calls)

    monkeypatch.setattr(MeasuredNet, "latencies_ms", lambda net, threads: [pace(net), 64 * pace(net)])
    monkeypatch.setattr(MeasuredNet, "step_ms", lambda net, threads: pace(net))
    return calls


def test_every_cell_is_measured_beside_its_plain_net_in_every_round(clockwork):
    said = []
    table = measure_cost(make_plans(), {"cluttered_digits": SHAPE}, threads=1, rounds=2, say=said.append)
    assert table["cell"].tolist() == ["resnet20(width_multiplier=0.25)+none", "resnet20(width_multiplier=0.25)+se"]
    assert table[["threads", "rounds"]].to_numpy().tolist() == [[1, 2]] * 2
    plain, gated = table.iloc[0], table.iloc[1]
    for column in ("latency_ratio_batch1", "latency_ratio_batch64", "train_rate_ratio"):
        assert (plain[f"{column}_low"], plain[column], plain[f"{column}_high"]) == (1, 1, 1)
    # forwards the gated net comes three measurements later, backwards three earlier: the mean is near the truth
    assert gated["latency_ratio_batch1_low"] == pytest.approx(2 / 1.1**3)
    assert gated["latency_ratio_batch1_high"] == pytest.approx(2 * 1.1**3)
    assert gated["latency_ratio_batch1"] == pytest.approx(1.1**-3 + 1.1**3)
    assert gated["train_rate_ratio"] == pytest.approx((1.1**-3 + 1.1**3) / 4)
    assert said == ["cost: round 1 of 2 over 2 nets", "cost: round 2 of 2 over 2 nets"]


def test_a_net_that_variants_of_the_data_share_is_measured_once(clockwork):
    plans = make_plans(data="cluttered_digits(clutter=0), cluttered_digits(clutter=2)")
    shapes = dict.fromkeys(["cluttered_digits(clutter=0)", "cluttered_digits(clutter=2)"], SHAPE)
    table = measure_cost(plans, shapes, threads=1, rounds=1)
    assert len(table) == 4
    assert len(set(clockwork)) == 2
    assert table["latency_ms_batch1"].nunique() == 2


def test_steps_train_and_passes_take_time():
    net = MeasuredNet(make_plans()[0].config, SHAPE)
    before = {name: value.clone() for name, value in net._system.model.state_dict().items()}
    assert net.step_ms(threads=1) > 0
    assert all(latency > 0 for latency in net.latencies_ms(threads=1))
    changed = [name for name, value in net._system.model.named_parameters() if (value != before[name]).any()]
    assert len(changed) == len(list(net._system.model.parameters()))


def test_a_cost_on_file_counts_only_for_the_same_nets_code_and_rounds(clockwork, tmp_path, monkeypatch):
    path = tmp_path / "cost.json"
    options = {"threads": 1, "rounds": 1}
    shapes = {"cluttered_digits": SHAPE}
    first = load_or_measure_cost(make_plans(), shapes, path, **options)
    count = len(clockwork)
    again = load_or_measure_cost(make_plans(), shapes, path, **options)
    assert len(clockwork) == count
    assert again.to_dict() == first.to_dict()
    load_or_measure_cost(make_plans(), shapes, path, threads=1, rounds=2)
    assert len(clockwork) > count
    for change in ({"attention": "none,eca"}, {}):
        if not change:
            monkeypatch.setattr(cost, "code_digest", lambda: "other")
        count = len(clockwork)
        load_or_measure_cost(make_plans(**change), shapes, path, **options)
        assert len(clockwork) > count
    path.write_text("[half")
    load_or_measure_cost(make_plans(), shapes, path, **options)
    assert json.loads(path.read_text())["code_digest"] == "other"


def test_no_round_is_refused():
    with pytest.raises(ValueError, match=r"rounds \(0\) must be at least 1"):
        measure_cost(make_plans(), {"cluttered_digits": SHAPE}, threads=1, rounds=0)
