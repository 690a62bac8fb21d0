"""ResNets: sizes, shortcuts, stems, places of the gates."""

import os
from pathlib import Path

import pytest
import torch
import torchvision

import zoo
from zoo.evaluation.complexity import count_parameters
from zoo.models.resnet import PaddedShortcut


@pytest.mark.parametrize(
    ("name", "plain", "se", "cbam"),
    [
        ("resnet18", 11_689_512, 11_778_592, 11_779_392),
        ("resnet34", 21_797_672, 21_958_868, 21_960_468),
        ("resnet50", 25_557_032, 28_088_024, 28_089_624),
        ("resnet101", 44_549_160, 49_326_872, 49_330_172),
    ],
)
def test_parameter_counts_are_those_of_the_papers_networks(name, plain, se, cbam):
    with torch.device("meta"):
        counts = [count_parameters(zoo.create_model(name, attention=attention)) for attention in (None, "se", "cbam")]
    assert counts == [plain, se, cbam]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet20", 269_722),
        ("resnet32", 464_154),
        ("resnet44", 658_586),
        ("resnet56", 853_018),
        ("resnet110", 1_727_962),
    ],
)
def test_cifar_parameter_counts_with_parameter_free_shortcuts(name, count):
    with torch.device("meta"):
        assert count_parameters(zoo.create_model(name)) == count


def test_convolution_shortcuts_add_their_parameters():
    assert count_parameters(zoo.create_model("resnet20", shortcut="conv")) == 272_474


@pytest.mark.parametrize(
    ("name", "widths"),
    [("resnet20", (16, 32, 64)), ("resnet18", (64, 128, 256, 512)), ("resnet50", (256, 512, 1024, 2048))],
)
def test_gate_width_is_that_of_the_branch(name, widths):
    with torch.device("meta"):
        places = zoo.create_model(name, attention="se").attention_places()
    assert {(place.stage, place.channels) for place in places} == set(enumerate(widths, start=1))
    assert len(places) == {"resnet20": 9, "resnet18": 8, "resnet50": 16}[name]
    assert places[0].name == "layer1.0.attention"


@pytest.mark.parametrize("name", ["resnet20", "resnet50"])
def test_gate_acts_last_in_the_branch_before_the_addition(name):
    model = zoo.create_model(name, attention="se", stem="cifar", width_multiplier=0.5).eval()
    block = model.layer2[0]
    last_norm = block.bn2 if name == "resnet20" else block.bn3
    seen = {}
    for label in ("attention", "downsample"):
        block.get_submodule(label).register_forward_hook(lambda _, x, y, label=label: seen.update({label: (x[0], y)}))
    last_norm.register_forward_hook(lambda _, x, y: seen.update(norm=y))
    block.register_forward_hook(lambda _, x, y: seen.update(block=y))
    with torch.no_grad():
        model(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert list(seen) == ["norm", "attention", "downsample", "block"]
    assert torch.equal(seen["attention"][0], seen["norm"])
    assert torch.equal(seen["block"], (seen["attention"][1] + seen["downsample"][1]).relu())


def test_padded_shortcut_subsamples_and_puts_zeros_on_both_sides():
    features = torch.arange(2 * 5 * 5.0).reshape(1, 2, 5, 5)
    padded = PaddedShortcut(2, 5, stride=2)(features)
    assert padded.shape == (1, 5, 3, 3)
    assert torch.equal(padded[:, 1:3], features[:, :, ::2, ::2])
    assert padded[:, [0, 3, 4]].count_nonzero() == 0


@pytest.mark.parametrize(("name", "stem", "size"), [("resnet20", "cifar", 8), ("resnet18", "cifar", 4)])
def test_cifar_stem_keeps_the_resolution(name, stem, size):
    model = zoo.create_model(name, stem=stem, width_multiplier=0.25).eval()
    sizes = []
    model.get_submodule(model.stages[-1]).register_forward_hook(lambda _, x, y: sizes.append(tuple(y.shape[2:])))
    model(torch.zeros(1, 3, 32, 32))
    assert sizes == [(size, size)]


def test_imagenet_stem_serves_the_cifar_family():
    model = zoo.create_model("resnet20", stem="imagenet").eval()
    assert model.conv1.weight.shape == (16, 3, 7, 7)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 10)


def test_width_multiplier_scales_every_stage():
    model = zoo.create_model("resnet20", width_multiplier=0.3)
    assert [model.get_submodule(stage)[0].bn2.num_features for stage in model.stages] == [5, 10, 20]


def test_shortcut_is_one_of_the_known():
    with pytest.raises(ValueError, match=r"shortcut \('option_a'\) must be one of pad, conv"):
        zoo.create_model("resnet20", shortcut="option_a")


def test_convolutions_start_from_he_normal_over_fan_out():
    torch.manual_seed(0)
    weight = zoo.create_model("resnet18").layer4[1].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)


def test_weights_trained_elsewhere_reach_their_published_accuracy():
    """resnet20-12fca82f.th of akamaster/pytorch_resnet_cifar10: 91.73 % with ImageNet's normalisation."""
    folder, data = os.environ.get("ZOO_WEIGHTS_EXTERNAL"), os.environ.get("ZOO_DATA")
    if not folder or not data:
        pytest.skip("set ZOO_WEIGHTS_EXTERNAL (folder of resnet20-12fca82f.th) and ZOO_DATA (folder of CIFAR-10)")
    theirs = torch.load(Path(folder) / "resnet20-12fca82f.th", map_location="cpu", weights_only=True)["state_dict"]
    names = {name: name.removeprefix("module.").replace("linear.", "fc.") for name in theirs}
    model = zoo.create_model("resnet20").eval()
    model.load_state_dict({names[name]: tensor for name, tensor in theirs.items()}, strict=True)
    test_set = torchvision.datasets.CIFAR10(data, train=False)
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, None, :, None, None]
    images = (torch.from_numpy(test_set.data[:1000]).permute(0, 3, 1, 2) / 255 - mean) / deviation
    with torch.no_grad():
        hits = (model(images).argmax(1) == torch.tensor(test_set.targets[:1000])).sum().item()
    assert hits == pytest.approx(915, abs=2)  # 9173 of all 10,000
