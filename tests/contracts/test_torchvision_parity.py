"""Every model that torchvision also has: same names, same sizes, same logits."""

import pytest
import torch
import torchvision
from torch import nn

import zoo
from zoo.evaluation.complexity import count_macs

NAMES = ("resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large")


def randomise(model: nn.Module) -> nn.Module:
    """Draw weights that carry the signal through, and other statistics and factors for every norm.

    So a layer that is swapped, skipped or given another constant shows in the logits.
    """
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=generator)
            nn.init.normal_(module.bias, 0, 0.1, generator=generator)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, generator=generator)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.1, generator=generator)
    return model


def without_gates(model: nn.Module) -> dict[str, torch.Size]:
    """Return names and shapes of a state dict, those of ours and of torchvision's gates left out."""
    gate = (".attention.", ".fc1.", ".fc2.")
    return {name: value.shape for name, value in model.state_dict().items() if not any(part in name for part in gate)}


@pytest.mark.parametrize("name", NAMES)
def test_torchvision_state_dict_gives_torchvision_logits(name):
    torch.manual_seed(0)
    theirs = randomise(torchvision.models.get_model(name)).eval()
    ours = zoo.create_model(name).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    images = torch.randn(2, 3, 65, 49)
    with torch.no_grad():
        expected, actual = theirs(images), ours(images)
    assert (expected[0] - expected[1]).abs().max() > 1e-2
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", [None, "none", "cbam"])
@pytest.mark.parametrize("name", NAMES)
def test_names_and_shapes_outside_the_gates_are_those_of_torchvision(name, attention):
    with torch.device("meta"):
        assert without_gates(zoo.create_model(name, attention=attention)) == without_gates(
            torchvision.models.get_model(name)
        )


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_macs_are_those_of_torchvisions_table(name):
    meta = torchvision.models.get_model_weights(name).DEFAULT.meta
    with torch.device("meta"):
        model = zoo.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == meta["num_params"]
    assert round(count_macs(model, (3, 224, 224)) / 1e9, 3) == meta["_ops"]


@pytest.mark.parametrize("width_multiplier", [0.35, 0.75, 1.4])
def test_mobilenet_widths_are_rounded_as_in_torchvision(width_multiplier):
    for name in ("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"):
        with torch.device("meta"):
            ours = zoo.create_model(name, width_multiplier=width_multiplier)
            if name == "mobilenet_v2":
                theirs = torchvision.models.MobileNetV2(width_mult=width_multiplier)
            else:
                rows, last = torchvision.models.mobilenetv3._mobilenet_v3_conf(name, width_mult=width_multiplier)
                theirs = torchvision.models.MobileNetV3(rows, last)
        assert without_gates(ours) == without_gates(theirs)
