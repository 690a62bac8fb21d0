"""Gates first, then all: what stands still does so to the bit, and joins in afterwards."""

import pytest
import torch
import torchvision
from lightning.pytorch import Callback, Trainer
from torch.utils.data import DataLoader, TensorDataset

import zoo
from zoo.config import OptimizationConfig
from zoo.training.gates_first import TrainGatesFirst
from zoo.training.image_classifier import ImageClassifier
from zoo.training.run import quiet_lightning


class States(Callback):
    """Keeps a copy of the weights and buffers after every epoch."""

    def __init__(self):
        self.after = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.after.append({name: value.clone() for name, value in pl_module.model.state_dict().items()})


def fit(model, *, gates_first_epochs, max_epochs=2, **trainer):
    quiet_lightning()
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(16, 3, 8, 8, generator=generator), torch.arange(16) % 3
    data = DataLoader(TensorDataset(images, labels), batch_size=8)
    states = States()
    system = ImageClassifier(model, num_classes=3, optimization=OptimizationConfig(warmup_epochs=0))
    Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, max_epochs=max_epochs, num_sanity_val_steps=0,
        callbacks=[TrainGatesFirst(gates_first_epochs), states], **trainer,
    ).fit(system, data, data)  # fmt: skip
    return states.after


def create(attention):
    torch.manual_seed(0)
    return zoo.create_model("resnet20", attention=attention, num_classes=3, width_multiplier=0.25)


def test_only_gates_move_at_first_and_everything_afterwards():
    model = create("cbam")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = fit(model, gates_first_epochs=1, gradient_clip_val=1.0)
    moved = {name for name, value in first.items() if not torch.equal(value, before[name])}
    assert moved
    assert {name for name in moved if ".attention." not in name} == set()
    assert "layer1.0.attention.spatial.norm.running_mean" in moved
    later = {name for name, value in second.items() if not torch.equal(value, first[name])}
    assert {"conv1.weight", "bn1.weight", "bn1.running_mean", "fc.bias"} <= later


def test_norms_that_a_gate_hangs_on_stand_still_too():
    """In torchvision's blocks the gate is a child of the last norm."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=3)
    zoo.insert_attention(model, "cbam", example_input=torch.zeros(1, 3, 32, 32))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    (first, _) = fit(model, gates_first_epochs=1)
    moved = {name for name, value in first.items() if not torch.equal(value, before[name])}
    assert {name for name in moved if ".attention." not in name} == set()
    assert any(name.endswith("attention.spatial.norm.running_mean") for name in moved)


def test_a_net_without_gates_and_a_run_without_a_second_part_are_refused():
    with pytest.raises(ValueError, match="gate"):
        fit(create(None), gates_first_epochs=1)
    with pytest.raises(ValueError, match=r"gates_first_epochs \(2\) must be below trainer.max_epochs \(2\)"):
        fit(create("se"), gates_first_epochs=2)
