"""Weights of timm's and torchvision's vision transformers: positions, registers, poolings, other images."""

import pytest
import safetensors.torch
import timm
import torch
from torch import nn

import zoo
from benchmarks.parity import OTHER_GRID, compare_logits
from zoo.pretrained import create_pretrained
from zoo.pretrained.name_maps import family_of, find_original
from zoo.pretrained.name_maps.vision_transformer import FAMILIES

TINY = {"embed_dim": 64, "depth": 2, "num_heads": 2}


def create_theirs(**options: object) -> nn.Module:
    """Build a small transformer of timm's, every parameter away from where it starts."""
    torch.manual_seed(0)
    model = timm.models.VisionTransformer(
        num_classes=7, qkv_bias=True, **{"img_size": 64, "patch_size": 16, **TINY, **options}
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def convert(theirs: nn.Module, **options: object) -> nn.Module:
    state = theirs.state_dict()
    weights = family_of("vit_tiny_patch16_224").layout_of(state).convert(state)
    ours = zoo.create_model("vit_tiny_patch16_224", **{**TINY, "num_classes": 7, "image_size": 64, **options}).eval()
    ours.load_state_dict({name: piece.tensor for name, piece in weights.items()})
    return ours


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {}),
        ({"reg_tokens": 4}, {"num_registers": 4}),
        ({"reg_tokens": 2, "no_embed_class": True}, {"num_registers": 2}),
        ({"init_values": 1e-5}, {"layer_scale": 1e-5}),
        ({"class_token": False, "global_pool": "avg"}, {"pooling": "mean"}),
        ({"class_token": False, "global_pool": "avg", "reg_tokens": 1}, {"pooling": "mean", "num_registers": 1}),
        ({"pos_embed": "none"}, {"positions": "none"}),
    ],
)
@pytest.mark.parametrize("size", [(64, 64), (96, 160)])
def test_every_variant_gives_timms_logits_on_both_grids(theirs: dict, ours: dict, size: tuple[int, int]) -> None:
    original = create_theirs(dynamic_img_size=True, **theirs)
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, actual = original(images), convert(original, **ours)(images)
    assert (expected[0] - expected[1]).abs().max() > 1e-2
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * max(1.0, float(expected.abs().max())))


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit3_small_patch16_224"])
def test_positions_are_resized_as_timm_resizes_them(name: str) -> None:
    original = find_original("timm", name)
    difference, size = compare_logits(original, image_size=OTHER_GRID, dynamic_img_size=True)
    assert difference <= 1e-5 * max(1.0, size)


def test_qk_norm_differs_by_its_eps_alone() -> None:
    original = create_theirs(qk_norm=True).double()
    ours = convert(original, qk_norm=True).double()
    for module in ours.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6
    images = torch.randn(2, 3, 64, 64, dtype=torch.double)
    torch.testing.assert_close(ours(images), original(images), rtol=0, atol=1e-6)


def positions_of(count: int, **tokens: int) -> dict[str, torch.Tensor]:
    """Return a state dict of timm's names with so many positions, and tokens before the grid."""
    state = {
        "patch_embed.proj.weight": torch.zeros(4, 3, 16, 16),
        "pos_embed": torch.arange(4.0 * count).reshape(1, count, 4),
    }
    return state | {name: torch.zeros(1, number, 4) for name, number in tokens.items()}


def test_the_tokens_before_the_grid_are_those_that_the_weights_hold() -> None:
    convert_state = FAMILIES[0].layout_of(["patch_embed.proj.weight"]).convert
    weights = convert_state(positions_of(198, cls_token=1, reg_token=1))
    assert weights["positions.prefix"].tensor.shape == (1, 2, 4)
    assert weights["positions.grid"].tensor.shape == (1, 14, 14, 4)
    assert weights["positions.grid"].tensor[0, 0, 0].tolist() == [8.0, 9.0, 10.0, 11.0]
    weights = convert_state(positions_of(196, cls_token=1))
    assert not weights["positions.prefix"].tensor.any()
    assert "zeros" in weights["positions.prefix"].change
    assert "positions.prefix" not in convert_state(positions_of(196))


@pytest.mark.parametrize(
    ("count", "tokens", "message"),
    [
        (
            195,
            {"cls_token": 1},
            r"pos_embed holds 195 positions, which are in no way a square grid, .* the 1 tokens before",
        ),
        (197, {}, r"197 positions, which are in no way a square grid"),
        (198, {"cls_token": 1}, r"198 positions, which are in no way"),
        (32, {}, r"32 positions, which are in no way a square grid"),
        (9, {"cls_token": 1, "reg_token": 4}, r"9 positions, which are in more than one way a square grid"),
    ],
)
def test_positions_whose_grid_is_not_known_are_refused(count: int, tokens: dict, message: str) -> None:
    convert_state = FAMILIES[0].layout_of(["patch_embed.proj.weight"]).convert
    with pytest.raises(ValueError, match=message):
        convert_state(positions_of(count, **tokens))


@pytest.fixture
def file(tmp_path) -> str:
    safetensors.torch.save_file(create_theirs().state_dict(), tmp_path / "theirs.safetensors")
    return str(tmp_path / "theirs.safetensors")


def test_weights_are_adapted_to_images_classes_and_channels(file: str) -> None:
    options = {**TINY, "image_size": [64, 96], "in_channels": 1, "num_classes": 3}
    model, report = create_pretrained("vit_tiny_patch16_224", file, **options)
    assert report.adapted == {
        "positions.grid": "positions of a grid of 4 x 4 resized to 4 x 6",
        "embedding.projection.weight": "filters for 3 channels adapted to 1",
        "head.weight": "the head for 7 classes is replaced by a fresh one for 3",
        "head.bias": "the head for 7 classes is replaced by a fresh one for 3",
    }
    plain = zoo.create_model("vit_tiny_patch16_224", **TINY, image_size=64, pretrained=file).eval()
    grey = torch.randn(2, 1, 64, 96)
    torch.testing.assert_close(
        model.eval().encode(grey), plain.encode(grey.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5
    )


def test_a_mean_pooled_model_does_not_take_the_weights_of_a_class_token(file: str) -> None:
    with pytest.raises(ValueError, match=r"do not fit the model: 2 missing \(head_norm\.weight, head_norm\.bias\)"):
        zoo.create_model(
            "vit_tiny_patch16_224", **TINY, image_size=64, pooling="mean", positions="none", pretrained=file
        )


def test_another_attention_is_refused_though_its_tensors_would_fit(tmp_path, save_tiny_weights) -> None:
    options = {**TINY, "num_classes": 10}
    model = zoo.create_model("vit_tiny_patch4_32", **options)
    save_tiny_weights(tmp_path / "a.yaml", model)
    source = str(tmp_path / "a.yaml")
    with pytest.raises(ValueError, match=r"attention is 'linear', not 'multi_head'"):
        zoo.create_model("vit_tiny_patch4_32", **options, attention="linear", pretrained=source)
    with pytest.raises(ValueError, match="positions is 'none', not 'learned'"):
        zoo.create_model("vit_tiny_patch4_32", **options, positions="none", pretrained=source)
    named = {"attention": "multi_head", "attention_args": {"backend": "reference", "attention_dropout": 0.1}}
    same = zoo.create_model("vit_tiny_patch4_32", **options, **named, drop_path_rate=0.1, pretrained=source)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in same.state_dict().items())
