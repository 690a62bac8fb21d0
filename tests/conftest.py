"""What tests of several folders need: a small trained-looking model saved with its card."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from zoo.preprocessing import PRESETS
from zoo.pretrained import WeightCard, save_weights

DIGITS = [str(digit) for digit in range(10)]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Several test processes share few cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_model() -> torch.nn.Module:
    """A ResNet-20 of a quarter of the width with non-trivial running statistics, always the same."""
    torch.manual_seed(0)
    model = zoo.create_model("resnet20", width_multiplier=0.25)
    with torch.no_grad():
        model(torch.randn(8, 3, 32, 32))
    return model


@pytest.fixture
def save_tiny_weights(tiny_model: torch.nn.Module) -> Callable[..., WeightCard]:
    """Return a function that saves the model as ``path``, as if trained on cluttered_digits."""

    def save(path: Path, model: torch.nn.Module = tiny_model, **sections: Any) -> WeightCard:
        defaults: dict[str, Any] = {
            "preprocessing": PRESETS["cluttered_digits"],
            "data": {"name": "cluttered_digits", "split": "test", "class_names": DIGITS, "options": {}},
            "metrics": {"selected_epoch": {"epoch": 3, "top1": 0.75}, "last_epoch": {"epoch": 5, "top1": 0.5}},
            "stored": "last_epoch",
        }
        return save_weights(model, path, **{**defaults, **sections})

    return save
