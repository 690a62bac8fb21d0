"""What all backbones share: strides, stages, rounding of widths."""

import pytest
import torch

import zoo
from zoo.models.backbone import fit_strides, linear, make_divisible, number_stages


def test_cifar_stem_drops_the_first_two_halvings_only():
    published = [2, 1, 2, 1, 2, 1, 2, 2]
    assert fit_strides(published, "cifar") == [1, 1, 1, 1, 2, 1, 2, 2]
    assert fit_strides(published, "imagenet") == published


def test_stages_count_the_halvings_after_the_first_block():
    assert number_stages([1, 2, 1, 2]) == [1, 2, 2, 3]
    assert number_stages([2, 2, 1, 2]) == [1, 2, 2, 3]


def test_widths_never_lose_more_than_a_tenth():
    assert [make_divisible(width) for width in (1, 12, 11.9, 18, 19, 20)] == [8, 16, 16, 24, 24, 24]
    assert all(make_divisible(width) >= 0.9 * width for width in range(1, 300))


def test_first_logits_are_near_zero():
    torch.manual_seed(0)
    layer = linear(1000, 100)
    assert 0.0095 < layer.weight.std().item() < 0.0105
    assert layer.bias.count_nonzero() == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet20", {"attention": "cbam"}),
        ("resnet50", {"width_multiplier": 0.125}),
        ("mobilenet_v1", {"width_multiplier": 0.125}),
        ("mobilenet_v2", {"width_multiplier": 0.125}),
        ("mobilenet_v3_small", {"width_multiplier": 0.125}),
        ("vit_tiny_patch4_32", {"embed_dim": 32, "depth": 1, "num_heads": 1, "num_registers": 1}),
        ("cct_2_3x2_32", {"embed_dim": 32, "depth": 1, "num_heads": 1}),
    ],
)
def test_the_feature_map_has_the_promised_channels_and_needs_no_classifier(name, options):
    torch.manual_seed(0)
    model = zoo.create_model(name, num_classes=3, **options).eval()
    images = torch.randn(2, 3, 64, 32)
    with torch.no_grad():
        features = model.feature_map(images)
        assert features.shape[:2] == (2, model.feature_channels)
        assert features.shape[2] == 2 * features.shape[3]
        before = model.feature_map(images)
        for part in model.classifier_names:
            setattr(model, part, torch.nn.Identity())
        assert torch.equal(model.feature_map(images), before)


def test_the_classifier_reads_the_mean_of_the_feature_map():
    model = zoo.create_model("resnet20", width_multiplier=0.25).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(images), model.fc(model.feature_map(images).mean((2, 3))))


def test_a_vision_transformer_lays_its_tokens_out_as_the_image():
    model = zoo.create_model("vit_tiny_patch4_32", embed_dim=32, depth=1, num_heads=1).eval()
    images = torch.randn(1, 3, 32, 64)
    with torch.no_grad():
        tokens, features = model.encode(images), model.feature_map(images)
    assert features.shape == (1, 32, 8, 16)
    assert torch.equal(features[0, :, 2, 3], tokens[0, 1 + 2 * 16 + 3])


def test_a_resnet_that_ends_early_has_the_map_of_that_stage():
    model = zoo.create_model("resnet20", width_multiplier=0.25, attention="se").eval()
    images = torch.randn(1, 3, 32, 32)
    maps = []
    model.layer2.register_forward_hook(lambda *arguments: maps.append(arguments[2]))
    with torch.no_grad():
        model.feature_map(images)
        model.end_at_stage(2)
        assert torch.equal(model.feature_map(images), maps[0])
    assert model.feature_channels == 8
    assert {place.stage for place in model.attention_places()} == {1, 2}
