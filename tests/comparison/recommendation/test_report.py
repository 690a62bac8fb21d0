"""Text, JSON and page say the same, whatever the answer; the page needs nothing else."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from zoo.comparison.choices import Choice
from zoo.comparison.recommendation.answer import Examples, FinalAccuracy, Recommendation, Request
from zoo.comparison.recommendation.data_measures import DataMeasures, measure_images
from zoo.comparison.recommendation.decision import Contrast, choose
from zoo.comparison.recommendation.evidence import HeldOutImages, Sign
from zoo.comparison.recommendation.page import format_page, interval_plot
from zoo.comparison.recommendation.planning import TrialPlan
from zoo.comparison.recommendation.price import Price, Ratio
from zoo.comparison.recommendation.report import format_text, to_dict, write_recommendation
from zoo.comparison.recommendation.saliency import SaliencyShares
from zoo.comparison.recommendation.sequential import Interval, SequentialRule
from zoo.config import parse_run_config


def contrast(net, base, low, high):
    interval = Interval((low + high) / 2, low, high, 0.98, 5, 400)
    return Contrast(net, base, interval, interval.verdict(0.005), 9 if low < 0 < high else None)


@pytest.fixture
def answer(tmp_path):
    """An answer in which SE is shown to gain; a class name that would be markup stands in its data's text."""
    images = torch.randint(0, 255, (12, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    measures = measure_images(images)
    shares = SaliencyShares(torch.rand(5), torch.rand(5), torch.rand(5, 64, 64))
    found = [contrast("se", "none", 0.01, 0.03), contrast("cbam", "none", -0.02, 0.03)]
    contrasts = {(one.net, one.base): one for one in found}
    held_out = HeldOutImages(images, torch.zeros(12, dtype=torch.int64), torch.arange(12))
    one = Ratio(1.0, 1.0, 1.0)
    return Recommendation(
        request=Request(
            data=Choice("cluttered_digits", {"clutter": 2}), model=Choice("resnet20", {"width_multiplier": 0.5}),
            folder=tmp_path / "answer", latency_budget_percent=50.0,
            recipe={"data": {"noise": 0.2}, "optimization": {"peak_lr": 0.05}, "channels_last": False},
        ),
        decision=choose(["se", "cbam"], contrasts, 0.005), data_text="Classes: <b>, &c",
        summary=DataMeasures.of(measures), signs=[Sign("clutter", 0.08, 0.06, True, "clutter 0.080, at least 0.06")],
        prices={"none": Price(100, 200, 1.5, one, 10.0, one),
                "se": Price(110, 201, 1.6, Ratio(1.1, 1.05, 1.2), 12.0, Ratio(1.2, 1.1, 1.3))},
        refused={"sam": "sam was not tried: why"}, plan=TrialPlan(7, (3, 5)), rule=SequentialRule((3, 5), 3),
        contrasts=list(contrasts.values()), validation_top1={"none": (0.5, 0.6), "se": (0.55, 0.65)},
        test=[FinalAccuracy("none", (0.4, 0.5)), FinalAccuracy("se", (0.45, 0.55))], used_minutes=12.3,
        examples=Examples(held_out, measures, shares),
    )  # fmt: skip


def nothing_trained(answer):
    import dataclasses

    return dataclasses.replace(
        answer, decision=choose([], {}, 0.005), signs=[], plan=None, rule=None, contrasts=[], validation_top1={},
        test=[], examples=None,
    )  # fmt: skip


def test_text_holds_the_recommendation_its_evidence_cost_and_confidence(answer):
    text = format_text(answer)
    assert text.startswith("Use se: its gain is shown and worth its price.")
    for part in ("+2.0 points (+1.0 to +3.0; 5 seeds, 400 images)", "time per image +10 % (+5 to +20)",
                 "yes  clutter 0.080", "sam was not tried", "Looks after 3 and 5 seeds", "12.3 of 30 minutes",
                 "9 seeds might do", "se: 50.00 %"):  # fmt: skip
        assert part in text


def test_the_command_that_the_answer_ends_with_is_one_of_train_py(answer):
    words = next(line for line in format_text(answer).splitlines() if "train.py" in line).split()
    import shlex

    config = parse_run_config(shlex.split(" ".join(words[2:])))
    assert config.model["attention"] == "se"
    assert config.model["attention_args"] == {"identity_start": True}
    assert (config.model["width_multiplier"], config.data["clutter"]) == (0.5, 2)
    assert (config.data["noise"], config.optimization.peak_lr, config.channels_last) == (0.2, 0.05, False)


def test_json_reads_back_and_says_the_same(answer):
    values, page = write_recommendation(answer, answer.request.folder)
    read = json.loads(values.read_text())
    assert read == json.loads(json.dumps(to_dict(answer)))
    assert (read["recommendation"], read["confidence"]) == ("se", "shown")
    assert read["differences"][0]["mean"] == pytest.approx(0.02)
    assert read["price"]["se"]["latency"]["median"] == 1.1
    assert read["rule"]["level"] == 0.95
    assert read["test_top1_read_after_the_decision"] == {"none": [0.4, 0.5], "se": [0.45, 0.55]}
    assert page.read_text() == format_page(answer)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img", "line", "rect", "circle"):
            self.open.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]

    def handle_startendtag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("change", [lambda answer: answer, nothing_trained])
def test_the_page_is_whole_and_asks_for_nothing_from_elsewhere(answer, change):
    page = format_page(change(answer))
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert all(link.startswith("data:image/png;base64,") for link in tags.links)
    assert not re.search(r"https?://|<script|@import|url\(", page)


def test_names_that_are_markup_are_escaped(answer):
    assert "Classes: &lt;b&gt;, &amp;c" in format_page(answer)


def test_an_answer_without_training_says_so(answer):
    text = format_text(nothing_trained(answer))
    assert text.startswith("Leave the net plain: no gate was tried.")
    assert "none was measured" in text
    assert to_dict(nothing_trained(answer))["runs"] is None


def test_intervals_are_drawn_where_they_are():
    plot = interval_plot([contrast("se", "none", -0.02, 0.04)], 0.005)
    centre = float(re.search(r'<circle cx="([\d.]+)"', plot)[1])
    zero = float(re.search(r'<line x1="([\d.]+)" x2="\1"', plot)[1])
    ends = [float(x) for x in re.search(r'<line x1="([\d.]+)" x2="([\d.]+)" y1="17.0"', plot).groups()]
    assert ends[0] < zero < centre < ends[1]
    assert centre == pytest.approx(np.mean(ends), abs=0.2)
    assert (zero - ends[0]) / (ends[1] - zero) == pytest.approx(0.5, abs=0.02)
