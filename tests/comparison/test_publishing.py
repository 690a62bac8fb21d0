"""Which seed is handed on, and that its card is whole and names no place of this machine."""

import json

import pytest

from zoo.comparison.publishing import best_seed, publish_weights
from zoo.comparison.study import study_from_options
from zoo.pretrained import load_pretrained
from zoo.training.program import main


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Two cells with two seeds each, trained for a moment."""
    study = study_from_options(
        models="resnet20(width_multiplier=0.25)", attention="none,se(reduction_ratio=4)",
        data="cluttered_digits(image_size=16, num_images=240, digit_size=12, batch_size=32)", seeds="2",
        options=["--trainer.max_epochs", "1", "--trainer.accelerator", "cpu", "--trainer.logger", "false"],
    )  # fmt: skip
    plans = study.plans(tmp_path_factory.mktemp("study"))
    for plan in plans:
        plan.config_file.parent.mkdir(parents=True, exist_ok=True)
        plan.write_config()
        assert main(["--config", str(plan.config_file)]) == 0
    return plans


def set_validation(plan, value):
    result = json.loads(plan.run.result.read_text())
    result["validation"] = dict.fromkeys(result["validation"], value)
    plan.run.result.write_text(json.dumps(result))


@pytest.mark.parametrize(("first", "second", "chosen"), [(0.5, 0.6, 1), (0.6, 0.5, 0), (0.5, 0.5, 0)])
def test_the_seed_is_chosen_on_held_out_images(plans, first, second, chosen):
    runs = [plan for plan in plans if plan.cell.attention == "none"]
    set_validation(runs[0], first)
    set_validation(runs[1], second)
    assert best_seed(runs) is runs[chosen]


def test_what_is_published_loads_and_names_no_place(plans, tmp_path):
    cards = publish_weights(plans, tmp_path / "weights")
    assert len(cards) == 2
    for path in cards:
        _, card = load_pretrained(path)
        assert card.training["run_dir"] is None
        assert str(plans[0].folder.parents[2]) not in path.read_text()
    assert cards[1].name.startswith("resnet20-width_multiplier-0.25_se-reduction_ratio-4.cluttered_digits")
