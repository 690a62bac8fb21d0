"""Every published network with a counterpart: the original module and ours give the same logits."""

import pytest
import timm
import torch
import torchvision
from torch import nn

import zoo
from benchmarks.parity import compare_logits
from zoo.pretrained.name_maps import families, family_of, find_original
from zoo.pretrained.name_maps.family import Piece, change_norm_eps, rename

ORIGINALS = [original for family in families() for original in family.originals]
QUICK = {"resnet18", "seresnet18", "seresnet50", "mobilenet_v2", "mobilenetv2_035", "mobilenet_v3_small"}
QUICK |= {"mobilenetv1_100", "mobilenetv3_small_100", "mobilenetv3_large_100", "mobilenet_v3_large"}
QUICK |= {
    "vit_tiny_patch16_224",
    "vit_small_patch16_224",
    "vit_base_patch16_224",
    "vit_b_16",
    "deit3_small_patch16_224",
}


@pytest.mark.parametrize(
    "original", [each for each in ORIGINALS if each.name in QUICK], ids=lambda each: f"{each.library}:{each.name}"
)
def test_logits_are_those_of_the_original(original) -> None:
    difference, size = compare_logits(original)
    assert difference <= 1e-5 * max(1.0, size)


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda each: f"{each.library}:{each.name}")
def test_every_name_and_shape_of_the_original_has_its_place(original) -> None:
    with torch.device("meta"):
        theirs = timm.create_model(original.name) if original.library == "timm" else None
        theirs = theirs or torchvision.models.get_model(original.name)
        ours = zoo.create_model(original.model, **original.options).state_dict()
        state = theirs.state_dict()
        weights = family_of(original.model).layout_of(state).convert(state)
    assert {name: piece.tensor.shape for name, piece in weights.items()} == {
        name: tensor.shape for name, tensor in ours.items()
    }
    assert {piece.origin for piece in weights.values()} == set(state)


def test_a_norm_with_another_eps_gives_the_same_in_evaluation() -> None:
    theirs, ours = nn.BatchNorm2d(4, eps=1e-5).double().eval(), nn.BatchNorm2d(4, eps=1e-3).double().eval()
    theirs.running_var.copy_(torch.tensor([1e-8, 1e-4, 1.0, 9.0]))
    nn.init.uniform_(theirs.weight)
    nn.init.uniform_(theirs.bias)
    weights = {f"n.{name}": Piece(name, value) for name, value in theirs.state_dict().items()}
    changed = change_norm_eps(weights, theirs=1e-5, ours=1e-3)
    ours.load_state_dict({name.removeprefix("n."): piece.tensor for name, piece in changed.items()})
    images = torch.randn(2, 4, 3, 3, dtype=torch.double)
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-12, atol=1e-12)
    assert changed["n.weight"].change == "rescaled from eps 1e-05 to 0.001"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tf_mobilenetv3_large_100", "it pads as TensorFlow does"),
        ("legacy_seresnet18", "without padding"),
        ("resnet50d", "stem of three convolutions"),
        ("seresnet50t", "stem of three convolutions"),
        ("mobilenetv1_100h", "one more convolution"),
        ("mobilenetv2_120d", "deeper"),
        ("mobilenetv3_small_075", "full width"),
        ("mobilenetv3_rw", "another activation"),
        ("resnext50_32x4d", "grouped or wider"),
        ("vit_base_patch32_224", "patches are of another size"),
        ("vit_large_patch16_224", "width is another"),
        ("deit_tiny_distilled_patch16_224", "distillation token"),
        ("vit_base_patch16_clip_224", "norm before the first block"),
        ("vit_base_patch16_siglip_224", "pools by"),
        ("vit_base_patch16_224_miil", "are others"),
        ("vgg16", "has no counterpart here. Those that have: .*seresnet18"),
    ],
)
def test_a_network_without_an_exact_counterpart_is_refused_with_the_reason(name: str, reason: str) -> None:
    assert timm.is_model(name)
    with pytest.raises(ValueError, match=reason):
        find_original("timm", name)


def test_every_registered_model_has_a_name_map_with_its_own_head_and_stem() -> None:
    for name in zoo.list_models():
        family = family_of(name)
        with torch.device("meta"):
            model = zoo.create_model(name, num_classes=13, in_channels=5)
        assert model.get_submodule(family.head).out_features == 13
        assert model.get_submodule(family.stem).in_channels == 5


def test_the_same_model_is_in_one_family_only() -> None:
    names = [name for family in families() for name in family.models]
    assert len(names) == len(set(names))


def test_names_of_no_known_layout_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tensors called encoder\.weight, \.\.\. are in none of the layouts known"):
        family_of("mobilenet_v2").layout_of(["encoder.weight"])


def test_two_names_that_become_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"both fc\.bias and linear\.bias would be called fc\.bias"):
        rename({"fc.bias": torch.zeros(1), "linear.bias": torch.zeros(1)}, [(r"^linear\.", "fc.")])
