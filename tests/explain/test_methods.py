"""A network that provably looks at one quadrant: each method must find it."""

import pytest
import torch

import zoo
from zoo.explain.methods import METHODS, explain_with, suitable_methods
from zoo.explain.placement import share_inside

CHANCE = 0.25


def outside_share(heatmap, region):
    return 1 - share_inside(heatmap.mass(), region.float())


@pytest.mark.parametrize("name", ["spatial_gates", "grad_cam", "occlusion", "integrated_gradients"])
def test_each_method_finds_the_quadrant_that_a_convolutional_net_looks_at(looks_at_region, bright_image, region, name):
    heatmap = explain_with(name, looks_at_region, bright_image, 1)
    assert heatmap.size == (16, 16)
    # Squares of occlusion reach over the quadrant's border; all others stay inside.
    assert outside_share(heatmap, region) < (0.3 if name == "occlusion" else 0.05)
    inner = torch.zeros_like(region)
    inner[10:, :6] = True
    assert float(heatmap.values[inner].min()) > float(heatmap.values[:6, 10:].max())


@pytest.mark.parametrize(
    "name", ["last_attention", "attention_rollout", "grad_cam", "occlusion", "integrated_gradients"]
)
def test_each_method_finds_the_quadrant_that_a_transformer_looks_at(make_looks_at_patches, bright_image, region, name):
    model = make_looks_at_patches((4, 4), [(2, 0), (2, 1), (3, 0), (3, 1)])
    heatmap = explain_with(name, model, bright_image, 1)
    # Maps of patches are interpolated over the border by half a patch.
    assert outside_share(heatmap, region) < 0.35
    assert float(heatmap.values[10:, :6].min()) > float(heatmap.values[:6, 10:].max())


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize(
    "name", ["last_attention", "attention_rollout", "grad_cam", "occlusion", "integrated_gradients"]
)
def test_the_peak_of_a_grid_that_is_not_square_is_at_the_patch_that_decides(make_looks_at_patches, name, prefix):
    model = make_looks_at_patches((7, 5), [(2, 3)], prefix)
    heatmap = explain_with(name, model, torch.full((1, 3, 28, 20), 0.5), 1)
    assert heatmap.size == (28, 20)
    rows, columns = (heatmap.values >= 0.99 * heatmap.values.max()).nonzero(as_tuple=True)
    assert abs(float(rows.double().mean()) - (2 * 4 + 1.5)) < 1
    assert abs(float(columns.double().mean()) - (3 * 4 + 1.5)) < 1


def test_what_suits_a_network_is_found_without_being_told():
    images = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    always = ["grad_cam", "occlusion", "integrated_gradients"]
    assert suitable_methods(zoo.create_model("resnet20"), images) == always
    assert suitable_methods(zoo.create_model("resnet20", attention="se"), images) == always
    assert suitable_methods(zoo.create_model("resnet20", attention="sam"), images) == ["spatial_gates", *always]
    transformer = zoo.create_model("vit_tiny_patch4_32", depth=1)
    assert suitable_methods(transformer, images) == ["last_attention", "attention_rollout", *always]
    assert suitable_methods(transformer, images, ["occlusion"]) == ["occlusion"]


def test_methods_that_do_not_exist_or_suit_are_named():
    model, images = zoo.create_model("resnet20"), torch.zeros(1, 3, 32, 32)
    with pytest.raises(ValueError, match=r"unknown method 'gradcam'\. Did you mean 'grad_cam'\?"):
        suitable_methods(model, images, ["gradcam"])
    with pytest.raises(ValueError, match="'attention_rollout' does not suit the model; those that do: grad_cam, occl"):
        suitable_methods(model, images, ["attention_rollout"])


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_network_is_left_as_it_was(name, looks_at_region, make_looks_at_patches, bright_image):
    needs_tokens = name in ("last_attention", "attention_rollout")
    model = make_looks_at_patches((4, 4), [(0, 0)]) if needs_tokens else looks_at_region
    model.train()
    state = torch.random.get_rng_state()
    explain_with(name, model, bright_image, 1)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    hooks = [module._forward_hooks | module._forward_pre_hooks for module in model.modules()]
    assert not any(hooks)


@pytest.mark.parametrize("name", ["resnet20", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "cct_2_3x2_32"])
def test_every_family_is_explained_in_inference_mode_too(name):
    torch.manual_seed(0)
    options = {"stem": "cifar", "width_multiplier": 0.25} if "cct" not in name else {}
    model = zoo.create_model(name, num_classes=3, **options).eval()
    images = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for method in suitable_methods(model, images):
            heatmap = explain_with(method, model, images, 2)
            assert heatmap.size == (32, 32)
            assert heatmap.values.abs().max() > 0
