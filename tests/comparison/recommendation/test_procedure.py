"""The procedure in a made-up world whose clock and accuracies are known, and once with real runs."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from zoo.comparison.choices import Choice
from zoo.comparison.engines.local import Outcome
from zoo.comparison.recommendation import procedure, trials
from zoo.comparison.recommendation.answer import Request
from zoo.comparison.recommendation.data_measures import SIDE, ImageMeasures
from zoo.comparison.recommendation.evidence import HeldOutImages
from zoo.comparison.recommendation.planning import Pace, TrialPlan
from zoo.comparison.recommendation.price import Price, Ratio
from zoo.comparison.recommendation.procedure import over_latency_budget, recommend
from zoo.comparison.recommendation.report import to_dict
from zoo.comparison.recommendation.saliency import SaliencyShares
from zoo.comparison.recommendation.words import next_command

NUM_IMAGES = 400


class World:
    """Runs take made-up seconds of a made-up clock, and nets are right on made-up images.

    Args:
        gains: Accuracy of a gate minus that of the plain net.
        slowdown: How much longer runs take than the probe said.
        centred: Whether nothing in the data speaks for a spatial gate.
        top1: Accuracy of the plain net; there are ten classes.
    """

    def __init__(self, gains=None, *, slowdown=1.0, centred=False, latency=None, seed_spread=0.0, top1=0.6):
        self.gains = {"none": 0.0, "se": 0.0, "cbam": 0.0} | (gains or {})
        self.slowdown = slowdown
        self.latency = {"none": 1.0, "se": 1.1, "cbam": 1.4} | (latency or {})
        self.seed_spread = seed_spread
        self.top1 = top1
        self.now = 1000.0
        self.trained = []
        self.finished = set()
        self.interrupt_after = None
        spread = 0.001 if centred else 0.2
        generator = torch.Generator().manual_seed(0)
        region = torch.ones(NUM_IMAGES, SIDE, SIDE, dtype=torch.bool)
        self.measures = ImageMeasures(
            centre=spread * torch.randn(NUM_IMAGES, 2, generator=generator),
            size=torch.full((NUM_IMAGES,), 0.2),
            clutter=torch.full((NUM_IMAGES,), 0.01),
            likeness=region.float(),
            region=region,
        )
        labels = torch.arange(NUM_IMAGES) % 10
        self.images = HeldOutImages(
            torch.zeros(NUM_IMAGES, 3, 8, 8, dtype=torch.uint8), labels, torch.arange(NUM_IMAGES)
        )
        inside = torch.zeros(NUM_IMAGES)
        self.saliency = SaliencyShares(inside, inside + 0.5, torch.ones(NUM_IMAGES, SIDE, SIDE))
        self.pace = Pace(10.0, {"none": 5.0, "se": 6.0, "cbam": 9.0}, 400)

    def install(self, monkeypatch):
        monkeypatch.setattr(trials, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(trials, "run_all", self.run_all)
        monkeypatch.setattr(trials, "code_digest", lambda: "code")
        monkeypatch.setattr(
            trials,
            "assess",
            lambda plan, _: SimpleNamespace(status="finished" if plan.folder in self.finished else "new"),
        )
        monkeypatch.setattr(trials.Trials, "load", lambda _, net, seed: (net, seed))
        monkeypatch.setattr(trials.Trials, "judge", lambda _, model: self.answers(*model))
        monkeypatch.setattr(procedure, "Workplace", SimpleNamespace(open=lambda request, gates: self))
        monkeypatch.setattr(procedure, "read_held_out", lambda data: self.images)
        monkeypatch.setattr(procedure, "measure_held_out", lambda images: self.measures)
        monkeypatch.setattr(procedure, "measure_saliency", lambda *_: self.saliency)
        monkeypatch.setattr(procedure, "test_top1", lambda *_: (0.5,))
        return self

    def assess(self, plan, digests):
        return SimpleNamespace(status="finished" if plan.folder in self.finished else "new")

    data = SimpleNamespace(name="made up", describe=lambda: "made up", digest=lambda: "data")
    device = torch.device("cpu")

    def measure_prices(self, gates):
        same = Ratio(1.0, 1.0, 1.0)
        return {
            name: Price(10, 20, ratio, Ratio(ratio, ratio, ratio), 100.0, same) for name, ratio in self.latency.items()
        }

    def measure_pace(self, nets, prices, clock):
        self.now += 20
        return Pace(self.pace.overhead_s, {net: self.pace.epoch_s[net] for net in nets}, self.pace.steps_per_epoch)

    def run_all(self, plans, jobs=1, *, monitor):
        (plan,) = plans
        net, epochs = plan.config.model["attention"], plan.config.trainer["max_epochs"]
        seconds = self.slowdown * self.pace.run_seconds(net, epochs)
        for _ in range(100):
            self.now += seconds / 100
            monitor.waited(plans)
        self.trained.append((net, plan.config.seed))
        if self.interrupt_after is not None and len(self.trained) > self.interrupt_after:
            self.interrupt_after = None
            raise KeyboardInterrupt
        self.finished.add(plan.folder)
        plan.folder.mkdir(parents=True)
        plan.run.result.write_text("{}")
        return [Outcome(plan, 0, seconds)]

    def answers(self, net, seed):
        """The same images are hard for all nets; a gate of a seed is a little luckier or not."""
        hardness = np.random.default_rng(0).random(NUM_IMAGES)
        luck = np.random.default_rng([seed, *net.encode()]).normal(0, 1, NUM_IMAGES + 1)
        return hardness + 0.02 * luck[1:] < self.top1 + self.gains[net] + self.seed_spread * luck[0]


@pytest.fixture
def ask(tmp_path, monkeypatch):
    def ask(world, **request):
        values = {"budget_minutes": 60.0, "folder": tmp_path / "folder"} | request
        asked = Request(data=Choice("cluttered_digits"), model=Choice("resnet20"), **values)
        world.install(monkeypatch)
        return recommend(asked, say=lambda _: None)

    return ask


@pytest.mark.parametrize(
    ("gains", "net"),
    [
        ({}, "none"),
        ({"se": 0.15}, "se"),
        ({"cbam": 0.2}, "cbam"),
        ({"se": 0.1, "cbam": 0.3}, "cbam"),
        ({"se": 0.2, "cbam": 0.205}, "se"),
        ({"se": -0.1, "cbam": -0.2}, "none"),
    ],
)
def test_the_net_that_is_better_is_recommended(ask, gains, net):
    answer = ask(World(gains))
    assert answer.decision.net == net
    assert {contrast.net for contrast in answer.contrasts} == {"se", "cbam"}


def test_no_difference_worth_its_price_is_an_answer_and_ends_the_search(ask):
    """With a margin that seeds and images at hand can rule out, the later looks are not needed."""
    world = World()
    answer = ask(world, margin_points=5.0)
    assert (answer.decision.net, answer.decision.confidence) == ("none", "shown")
    assert "no difference worth its price" in answer.decision.reason
    assert {contrast.verdict for contrast in answer.contrasts} == {"no gain worth its price"}
    assert len(world.trained) < 3 * answer.plan.looks[-1]


def test_what_stays_open_is_said_to_be_not_shown(ask):
    answer = ask(World({"se": 0.01}, seed_spread=0.02))
    assert (answer.decision.net, answer.decision.confidence) == ("none", "not shown")
    assert all(contrast.is_open for contrast in answer.contrasts if contrast.base == "none")


def test_the_command_for_full_length_leaves_out_what_cuts_runs_short(ask):
    answer = ask(World({"se": 0.15}), recipe={"trainer": {"limit_train_batches": 2, "precision": "32-true"}})
    _, command = next_command(answer)
    assert "limit_train_batches" not in command
    assert "--trainer.precision 32-true" in command


def test_nets_that_only_guess_give_no_recommendation(ask):
    """There are ten classes alike in number; what all nets lack is no reason for the plain one."""
    answer = ask(World(top1=0.1))
    assert answer.decision.confidence == "nothing learned"
    assert "naming the commonest class, 10.0 % of" in answer.decision.reason
    assert next_command(answer)[0].startswith(
        "Ask again with longer runs: the same command with --budget 240 and another"
    )
    assert to_dict(answer)["recommendation"] is None


def test_a_gate_that_alone_learns_is_recommended(ask):
    assert ask(World({"cbam": 0.4}, top1=0.1)).decision.net == "cbam"


def test_plain_and_se_come_first_and_pairs_share_their_seeds(ask):
    world = World({"se": 0.3, "cbam": 0.3})
    ask(world)
    assert world.trained[:6] == [("none", 0), ("se", 0), ("none", 1), ("se", 1), ("none", 2), ("se", 2)]
    assert world.trained[6:9] == [("cbam", 0), ("cbam", 1), ("cbam", 2)]


def test_seeds_are_added_only_for_what_is_open(ask):
    """SE is decided at the first look; CBAM is not."""
    world = World({"se": -0.4, "cbam": 0.01}, seed_spread=0.01)
    answer = ask(world, budget_minutes=300)
    counts = {net: sum(name == net for name, _ in world.trained) for net in ("none", "se", "cbam")}
    assert counts["se"] == 3
    assert counts["none"] == counts["cbam"] > 3
    assert next(contrast for contrast in answer.contrasts if contrast.net == "se").verdict == "loss"


def test_without_any_sign_the_spatial_gate_is_not_tried(ask):
    world = World({"se": 0.3}, centred=True)
    answer = ask(world)
    assert answer.decision.net == "se"
    assert "cbam was not tried" in answer.refused["cbam"]
    assert {net for net, _ in world.trained} == {"none", "se"}


def test_a_gate_over_the_latency_budget_is_not_trained_however_good(ask):
    world = World({"cbam": 0.3})
    answer = ask(world, latency_budget_percent=20)
    assert answer.decision.net == "none"
    assert answer.refused["cbam"].startswith("cbam was not tried: it takes 40 % more time")
    assert {net for net, _ in world.trained} == {"none", "se"}
    assert answer.rule.num_contrasts == 1


def test_when_no_gate_is_within_the_latency_budget_nothing_is_trained(ask):
    world = World()
    answer = ask(world, latency_budget_percent=5)
    assert (answer.decision.net, answer.decision.confidence) == ("none", "not tried")
    assert world.trained == []
    assert answer.plan is answer.rule is None


def test_latency_is_held_against_the_budget():
    prices = World().measure_prices(())
    assert over_latency_budget(prices, None) == {}
    assert set(over_latency_budget(prices, 12)) == {"cbam"}
    assert set(over_latency_budget(prices, 9)) == {"se", "cbam"}
    assert set(over_latency_budget(prices, 40.1)) == set()


@pytest.mark.parametrize("minutes", [7, 15, 40])
@pytest.mark.parametrize("slowdown", [0.7, 1.0, 1.3])
def test_the_budget_is_honoured_even_when_runs_are_slower_than_the_probe(ask, minutes, slowdown):
    world = World({"se": 0.01, "cbam": 0.01}, slowdown=slowdown, seed_spread=0.02)
    started = world.now
    answer = ask(world, budget_minutes=minutes)
    assert world.now - started <= 60 * minutes
    assert answer.used_minutes <= minutes
    assert answer.contrasts


def test_when_time_runs_out_the_seeds_that_are_there_are_looked_at(ask):
    """Runs slower than planned by three tenths: fewer than the three seeds of the first look."""
    world = World({"se": 0.01, "cbam": 0.01}, slowdown=1.3, seed_spread=0.02)
    answer = ask(world, budget_minutes=7)
    assert {contrast.interval.num_seeds for contrast in answer.contrasts} == {2}


def test_too_little_time_for_two_seeds_is_an_error_and_more_budget_goes_on(ask):
    world = World(slowdown=5.0)
    with pytest.raises(ValueError, match=r"after 1 of 3 seeds, too few.*more --budget"):
        ask(world, budget_minutes=7)
    trained = list(world.trained)
    assert ask(world, budget_minutes=90).decision.net == "none"
    assert len(set(world.trained)) == len(world.trained)
    assert world.trained[: len(trained)] == trained


def test_an_interruption_loses_no_run_and_time_used_counts(ask):
    world = World({"cbam": 0.2})
    world.interrupt_after = 4
    with pytest.raises(KeyboardInterrupt):
        ask(world)
    plan = json.loads((next(iter(world.finished)).parents[3] / "plan.json").read_text())
    before = world.now
    world.now += 10_000  # nobody worked meanwhile
    answer = ask(world)
    assert answer.decision.net == "cbam"
    repeated = [run for run in set(world.trained) if world.trained.count(run) > 1]
    assert len(repeated) == 1  # the one that was interrupted
    assert answer.used_minutes == pytest.approx((world.now - 10_000 - 1000) / 60, abs=0.1)
    assert plan["used_seconds"] == pytest.approx(before - 1000, abs=1)
    assert list(answer.plan.looks) == plan["plan"]["looks"]


def test_a_failed_run_is_an_error_that_names_its_log(ask, monkeypatch):
    world = World()
    world.run_all = lambda plans, jobs=1, *, monitor: [Outcome(plans[0], 1, 1.0)]
    with pytest.raises(ValueError, match=r"none, seed 0 failed: .*its log is .*seed0\.log"):
        ask(world)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_where_no_gate_can_help_the_answer_is_plain(colour_folder, quick_runs, monkeypatch, tmp_path):
    """Real runs: the label is the colour of the whole image. The test images have no part in it."""
    monkeypatch.setattr(procedure, "plan_trials", lambda left, pace: TrialPlan(2, (3,)))
    data = {"root": str(colour_folder), "image_size": 16, "num_workers": 0, "batch_size": 16, "keep_aspect": False}
    request = Request(
        data=Choice("image_folder", data), model=Choice("resnet20", {"width_multiplier": 0.25}),
        folder=tmp_path / "answer", margin_points=50.0, recipe={"trainer": {"precision": "32-true", "logger": False}},
    )  # fmt: skip
    said = []
    answer = recommend(request, say=said.append)
    assert answer.decision.net == "none"
    assert answer.contrasts[0].interval.num_seeds == 3
    assert [figure.net for figure in answer.test][:2] == ["none", "se"]
    assert len(quick_runs) == 1 + sum(len(figure.top1) for figure in answer.test)  # the probe, and each run once
    for plan in quick_runs[1:]:
        result = json.loads(plan.run.result.read_text())
        result["last_epoch"]["top1"] = 1.0 if plan.config.model["attention"] == "se" else 0.0
        plan.run.result.write_text(json.dumps(result))
    again = recommend(request, say=said.append)
    assert again.decision == answer.decision
    assert again.test != answer.test
    assert len(quick_runs) == 1 + sum(len(figure.top1) for figure in answer.test)


def test_a_look_that_time_cut_short_is_spent_and_more_budget_does_not_take_it_again(ask):
    """The error of every look is spent once, or the intervals together would not keep their level."""
    world = World({"se": 0.01, "cbam": 0.01}, slowdown=1.3, seed_spread=0.02)
    first = ask(world, budget_minutes=25)
    assert first.rule.looks == (3, 5)
    assert {contrast.interval.num_seeds for contrast in first.contrasts} == {4}
    assert first.decision.reason.endswith("so that more --budget asks for another --folder")
    num_trained = len(world.trained)
    again = ask(world, budget_minutes=90)
    assert again.contrasts == first.contrasts
    assert len(world.trained) == num_trained


def test_more_budget_goes_on_with_the_next_look(ask, tmp_path):
    world = World({"se": 0.01, "cbam": 0.01}, slowdown=1.3, seed_spread=0.02)
    first = ask(world, budget_minutes=60)
    assert first.rule.looks == (3, 5, 8, 9)
    assert {contrast.interval.num_seeds for contrast in first.contrasts} == {8}
    assert first.decision.reason.endswith("; the same command with more --budget adds seeds")
    again = ask(world, budget_minutes=90)
    assert {contrast.interval.num_seeds for contrast in again.contrasts} == {9}
    assert json.loads((tmp_path / "folder" / "plan.json").read_text())["looks"] == {"0": 3, "1": 5, "2": 8, "3": 9}


def test_a_gain_that_may_be_worth_its_price_is_not_called_none(ask):
    """Shown above zero and below the margin at best estimate: more seeds could still tell."""
    answer = ask(World({"se": 0.03}, centred=True), margin_points=4.0)
    (contrast,) = answer.contrasts
    assert contrast.verdict == "gain, perhaps too small"
    assert contrast.is_open
    assert (answer.decision.net, answer.decision.confidence) == ("none", "not shown")
    assert "se gains over none, perhaps less than its price" in answer.decision.reason


@pytest.mark.parametrize(("change", "what"), [("data", "of other images"), ("code", "made by another version")])
def test_a_folder_of_other_images_or_other_code_is_refused_and_left_as_it_is(ask, tmp_path, monkeypatch, change, what):
    world = World({"se": 0.3}, centred=True)
    ask(world)
    before = (tmp_path / "folder" / "plan.json").read_text()
    if change == "data":
        world.data = SimpleNamespace(**{**vars(World.data), "digest": lambda: "other data"})
    else:
        monkeypatch.setattr(procedure, "code_digest", lambda: "other code")
    with pytest.raises(ValueError, match=f"holds a recommendation {what}.*another --folder"):
        ask(world)
    assert (tmp_path / "folder" / "plan.json").read_text() == before


def test_a_warm_up_longer_than_the_runs_is_refused_before_the_plan_is_kept(ask, tmp_path):
    recipe = {"optimization": {"warmup_epochs": 12}}
    with pytest.raises(ValueError, match=r"warmup_epochs \(12\) must be below the \d+ epochs.*--budget"):
        ask(World(), budget_minutes=15, recipe=recipe)
    assert ask(World(), budget_minutes=60, recipe=recipe).plan.epochs > 12
