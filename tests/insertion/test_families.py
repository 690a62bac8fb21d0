"""Gates sit where the papers put them, in the networks people really use."""

import importlib

import pytest
import timm
import torch
import torchvision
from torch import nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.segmentation import DeepLabV3
from torchvision.models.segmentation.deeplabv3 import DeepLabHead

import zoo
from zoo.insertion import FAMILIES

# Network, number of gates, name and channels of one of them, module that runs just before it, module just after it.
PLACES = [
    ("torchvision", "resnet18", 8, "layer2.0.bn2.attention", 128, "layer2.0.bn2", "layer2.0.downsample"),
    ("torchvision", "resnet50", 16, "layer1.0.bn3.attention", 256, "layer1.0.bn3", "layer1.0.downsample"),
    ("torchvision", "resnext50_32x4d", 16, "layer4.0.bn3.attention", 2048, "layer4.0.bn3", "layer4.0.downsample"),
    ("torchvision", "regnet_x_400mf", 22, "trunk_output.block2.block2-0.f.b.attention", 64,
     "trunk_output.block2.block2-0.f.b.2", "trunk_output.block2.block2-0.f.c"),
    ("torchvision", "mobilenet_v2", 17, "features.2.conv.1.attention", 96, "features.2.conv.1.2", "features.2.conv.2"),
    ("torchvision", "convnext_tiny", 18, "features.1.0.stochastic_depth.attention", 96,
     "features.1.0.block", "features.1.0.stochastic_depth"),
    ("torchvision", "densenet121", 58, "features.denseblock1.denselayer2.conv2.attention", 32,
     "features.denseblock1.denselayer2.conv2", "features.denseblock1.denselayer3"),
    ("timm", "resnet18", 8, "layer2.0.bn2.attention", 128, "layer2.0.bn2", "layer2.0.downsample"),
    ("timm", "resnet50", 16, "layer1.0.bn3.attention", 256, "layer1.0.bn3", "layer1.0.downsample"),
    ("timm", "regnetx_002", 13, "s2.b1.conv2.attention", 56, "s2.b1.conv2", "s2.b1.se"),
    ("timm", "mobilenetv1_100", 13, "blocks.1.0.bn2.attention", 128, "blocks.1.0.bn2", "blocks.1.1"),
    ("timm", "mobilenetv2_050", 17, "blocks.1.0.se.attention", 48, "blocks.1.0.se", "blocks.1.0.conv_pwl"),
    ("timm", "mobilenetv4_conv_small", 12, "blocks.2.0.se.attention", 192, "blocks.2.0.se", "blocks.2.0.pw_proj"),
    ("timm", "efficientnet_lite0", 16, "blocks.1.0.se.attention", 96, "blocks.1.0.se", "blocks.1.0.conv_pwl"),
    ("timm", "convnext_atto", 12, "stages.1.blocks.0.drop_path.attention", 80,
     "stages.1.blocks.0.mlp", "stages.1.blocks.0.drop_path"),
    ("timm", "densenet121", 58, "features.denseblock1.denselayer2.conv2.attention", 32,
     "features.denseblock1.denselayer2.conv2", "features.denseblock1.denselayer3"),
]  # fmt: skip
# Networks that bring gates of their own: number of them, and the first.
OWN_GATES = [
    ("torchvision", "mobilenet_v3_small", 9, "features.1.block.1"),
    ("torchvision", "regnet_y_400mf", 16, "trunk_output.block1.block1-0.f.se"),
    ("torchvision", "efficientnet_b0", 16, "features.1.0.block.1"),
    ("torchvision", "efficientnet_v2_s", 30, "features.4.0.block.2"),
    ("timm", "mobilenetv3_small_050", 9, "blocks.0.0.se"),
    ("timm", "efficientnetv2_rw_t", 29, "blocks.3.0.se"),
    ("timm", "seresnet50", 16, "layer1.0.se"),
]


def create(library, name):
    torch.manual_seed(0)
    if library == "timm":
        return timm.create_model(name, num_classes=5)
    return torchvision.models.get_model(name, weights=None, num_classes=5)


def order_of_running(model, names, images):
    order = []
    handles = [
        model.get_submodule(name).register_forward_pre_hook(lambda *_, name=name: order.append(name)) for name in names
    ]
    model(images)
    for handle in handles:
        handle.remove()
    return order


@pytest.mark.parametrize(
    ("library", "name", "count", "gate", "channels", "before", "after"), PLACES, ids=lambda value: str(value)
)
def test_gates_have_the_width_of_the_map_and_run_where_the_paper_puts_them(
    trained, images, library, name, count, gate, channels, before, after
):
    model = trained(create(library, name))
    expected, plain_names = model(images), list(model.state_dict())
    report = zoo.insert_attention(model, "eca", example_input=images)
    gates = {entry.name: entry for entry in report.gates}
    assert len(gates) == count
    assert gates[gate].channels == channels
    order = order_of_running(model, [before, gate, after], images)
    assert order == [before, gate, after]
    assert torch.equal(model(images), expected)
    assert [name for name in model.state_dict() if ".attention." not in name] == plain_names


@pytest.mark.parametrize(("library", "name", "count", "first"), OWN_GATES)
def test_gates_of_the_network_itself_are_not_doubled(trained, images, library, name, count, first):
    model = trained(create(library, name))
    names, expected = list(model.state_dict()), model(images)
    with pytest.raises(ValueError, match=rf"there is a gate already: {first} \(\w+\).* and {count - 3} more"):
        zoo.insert_attention(model, "eca", example_input=images)
    assert list(model.state_dict()) == names
    report = zoo.insert_attention(model, "eca", example_input=images, replace=True)
    assert len(report.gates) == count
    assert report.gates[0].name == f"{first}.attention"
    assert report.gates[0].replaced
    assert report.max_difference > 0
    assert not any(name.startswith(f"{first}.") and ".attention." not in name for name in model.state_dict())
    zoo.remove_attention(model)
    assert list(model.state_dict()) == names
    assert torch.equal(model(images), expected)


@pytest.mark.parametrize("block", [block for family in FAMILIES for block in family.blocks])
def test_the_blocks_of_the_table_exist(block):
    module, _, name = block.rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), name), nn.Module)


def test_segmentation_network_with_a_dilated_backbone_counts_stages_by_layer():
    model = torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=3)
    report = zoo.insert_attention(model, "se", stages=[4], example_input=torch.randn(1, 3, 32, 32))
    assert [gate.name for gate in report.gates] == [f"backbone.layer4.{index}.bn3.attention" for index in range(3)]
    optimizer = torch.optim.SGD(zoo.attention_parameters(model), lr=0.1)
    before = [parameter.detach().clone() for parameter in zoo.attention_parameters(model)]
    output = model.train()(torch.randn(2, 3, 32, 32))
    nn.functional.cross_entropy(output["out"], torch.randint(3, (2, 32, 32))).backward()
    optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, zoo.attention_parameters(model), strict=True))


def test_deeplab_steps_with_gates():
    torch.manual_seed(0)
    resnet = torchvision.models.resnet18(weights=None)
    backbone = IntermediateLayerGetter(resnet, {"layer4": "out"})
    model = DeepLabV3(backbone, DeepLabHead(512, 3, atrous_rates=(1, 2)))
    report = zoo.insert_attention(model, "cbam", example_input=torch.randn(1, 3, 64, 64))
    assert len(report.gates) == 8
    assert report.max_difference == 0.0
    output = model.train()(torch.randn(2, 3, 64, 64))["out"]
    nn.functional.cross_entropy(output, torch.randint(3, (2, 64, 64))).backward()
    assert all(parameter.grad is not None for parameter in zoo.attention_parameters(model))


def test_faster_rcnn_steps_with_gates_in_its_backbone():
    torch.manual_seed(0)
    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    detector = FasterRCNN(backbone, num_classes=3, min_size=64, max_size=64, box_detections_per_img=5)
    report = zoo.insert_attention(detector, "cbam", example_input=[torch.rand(3, 64, 64)])
    assert [gate.name for gate in report.gates][:1] == ["backbone.body.layer1.0.bn2.attention"]
    assert len(report.gates) == 8
    targets = [{"boxes": torch.tensor([[4.0, 4.0, 40.0, 40.0]]), "labels": torch.tensor([1])}]
    losses = detector.train()([torch.rand(3, 64, 64)], targets)
    sum(losses.values()).backward()
    assert all(parameter.grad is not None for parameter in zoo.attention_parameters(detector))
    zoo.remove_attention(detector)
    zoo.insert_attention(detector.backbone, "cbam", example_input=torch.rand(1, 3, 64, 64))
