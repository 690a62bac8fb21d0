"""A frozen backbone stands still to the bit while its gates learn, whatever train() says."""

import copy
import io

import pytest
import torch
from torch import nn

import zoo


@pytest.fixture
def gated(net):
    zoo.insert_attention(net, "cbam")
    return net


def is_of_gate(name):
    return ".attention." in name


def train_two_epochs(model):
    """Data with a mean of 100, which running statistics would follow."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    for _ in range(2):
        model.train()
        for _ in range(2):
            optimizer.zero_grad()
            model(100 + torch.randn(4, 3, 32, 32)).square().mean().backward()
            optimizer.step()
        model.eval()


def test_trunk_is_bit_equal_after_two_epochs_and_gates_have_moved(gated):
    before = copy.deepcopy(gated.state_dict())
    frozen = zoo.freeze_backbone(gated)
    train_two_epochs(gated)
    after = gated.state_dict()
    assert set(frozen) == {name for name, _ in gated.named_parameters() if not is_of_gate(name)}
    assert all(torch.equal(value, after[name]) for name, value in before.items() if not is_of_gate(name))
    assert any(not torch.equal(value, after[name]) for name, value in before.items() if is_of_gate(name))
    moved = [name for name, value in before.items() if not torch.equal(value, after[name])]
    assert any(name.endswith("running_mean") for name in moved)  # the gates' own norms follow train()


def test_frozen_dropout_is_off_and_the_gates_follow_the_mode(gated):
    zoo.freeze_backbone(gated)
    gated.train()
    training = {name for name, module in gated.named_modules() if module.training}
    assert training
    assert all(".attention" in name for name in training)
    gated.eval()
    assert not any(module.training for module in gated.modules())


def test_what_is_named_goes_on_training(resnet):
    zoo.insert_attention(resnet, "se")
    frozen = zoo.freeze_backbone(resnet, trainable=["fc", "layer4.*.bn1"])
    assert "fc.weight" not in frozen
    assert "layer4.0.bn1.weight" not in frozen
    assert "layer4.0.bn2.weight" in frozen
    resnet.train()
    assert resnet.training
    assert resnet.layer4[0].bn1.training
    assert not resnet.layer4[0].bn2.training
    assert not resnet.layer1.training
    with pytest.raises(ValueError, match="matches no module"):
        zoo.freeze_backbone(zoo.create_model("resnet20", attention="se"), trainable="head")


def test_unfreezing_restores_what_was_trainable_and_the_mode(resnet):
    resnet.conv1.weight.requires_grad_(False)
    zoo.insert_attention(resnet, "se")
    trainable = {name for name, parameter in resnet.named_parameters() if parameter.requires_grad}
    frozen = zoo.freeze_backbone(resnet)
    assert "conv1.weight" not in frozen
    resnet.train()
    assert set(zoo.unfreeze_backbone(resnet)) == set(frozen)
    assert {name for name, parameter in resnet.named_parameters() if parameter.requires_grad} == trainable
    assert all(module.training for module in resnet.modules())
    resnet.eval()
    assert not any(module.training for module in resnet.modules())
    with pytest.raises(ValueError, match="nothing is frozen"):
        zoo.unfreeze_backbone(resnet)


def test_freezing_survives_copies_and_files(gated):
    zoo.freeze_backbone(gated)
    file = io.BytesIO()
    torch.save(gated, file)
    file.seek(0)
    for model in (copy.deepcopy(gated), torch.load(file, weights_only=False)):
        before = copy.deepcopy(model.state_dict())
        train_two_epochs(model)
        assert all(
            torch.equal(value, before[name]) for name, value in model.state_dict().items() if not is_of_gate(name)
        )
        assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module.training for name, module in gated.train().named_modules() if ".attention" not in name)


def test_gates_inserted_into_a_frozen_network_follow_the_mode(resnet):
    model = zoo.create_model("resnet20", attention="se", width_multiplier=0.25)
    zoo.freeze_backbone(model)
    model.train()
    assert model.layer1[0].attention.training
    assert not model.layer1[0].bn1.training


def test_freezing_twice_or_without_gates_is_refused(resnet):
    with pytest.raises(ValueError, match="no gate that could train"):
        zoo.freeze_backbone(resnet)
    zoo.insert_attention(resnet, "se")
    zoo.freeze_backbone(resnet)
    with pytest.raises(ValueError, match="frozen already"):
        zoo.freeze_backbone(resnet)
    zoo.remove_attention(resnet)
    zoo.unfreeze_backbone(resnet)
    assert all(parameter.requires_grad for parameter in resnet.parameters())


def test_a_detector_trains_while_its_backbone_stands_still(images):
    class Detector(nn.Module):
        def __init__(self, backbone):
            super().__init__()
            self.backbone = backbone
            self.head = nn.Linear(5, 2)

        def forward(self, images):
            return self.head(self.backbone(images)), self.training

    from zoo import create_model

    backbone = create_model("resnet20", attention="se", num_classes=5, width_multiplier=0.25)
    detector = Detector(backbone)
    zoo.freeze_backbone(detector.backbone)
    _, is_training = detector.train()(images)
    assert is_training
    assert not detector.backbone.layer1[0].bn1.training
    assert detector.head.weight.requires_grad
