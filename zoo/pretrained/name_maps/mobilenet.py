"""MobileNets of torchvision and timm."""

import re
from collections.abc import Collection, Mapping

from torch import Tensor

from zoo.pretrained.name_maps.family import (
    Family,
    Layout,
    Original,
    Weights,
    change_norm_eps,
    flatten_pointwise,
    rename,
    rename_modules,
)


def _is_timm(names: Collection[str]) -> bool:
    return "conv_stem.weight" in names


def _is_torchvision(names: Collection[str]) -> bool:
    """Tell torchvision's names, which ours follow."""
    return "features.0.0.weight" in names


def _timm_blocks(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Number timm's blocks, which it counts within stages, through from 1 as torchvision does."""
    found = {(int(match[1]), int(match[2])) for name in state if (match := re.match(r"blocks\.(\d+)\.(\d+)\.", name))}
    return {f"blocks.{stage}.{index}": number for number, (stage, index) in enumerate(sorted(found), start=1)}


def _convert_timm_v2(state: Mapping[str, Tensor]) -> Weights:
    blocks = _timm_blocks(state)
    last = f"features.{len(blocks) + 1}"
    modules = {"conv_stem": "features.0.0", "bn1": "features.0.1", "conv_head": f"{last}.0", "bn2": f"{last}.1"}
    modules["classifier"] = "classifier.1"
    for block, number in blocks.items():
        if f"{block}.conv_pwl.weight" in state:
            parts = {"conv_pw": "0.0", "bn1": "0.1", "conv_dw": "1.0", "bn2": "1.1", "conv_pwl": "2", "bn3": "3"}
        else:
            parts = {"conv_dw": "0.0", "bn1": "0.1", "conv_pw": "1", "bn2": "2"}
        modules |= {f"{block}.{theirs}": f"features.{number}.conv.{ours}" for theirs, ours in parts.items()}
    return rename_modules(state, modules)


_V2 = Family(
    models=("mobilenet_v2",),
    head="classifier.1",
    stem="features.0.0",
    layouts=[
        Layout("timm", _is_timm, _convert_timm_v2),
        Layout("torchvision", _is_torchvision, lambda state: rename(state, ())),
    ],
    originals=[
        Original("torchvision", "mobilenet_v2", "mobilenet_v2"),
        Original("timm", "mobilenetv2_100", "mobilenet_v2"),
        *(
            Original("timm", f"mobilenetv2_{percent:03}", "mobilenet_v2", {"width_multiplier": percent / 100})
            for percent in (35, 50, 75, 140)
        ),
    ],
    refusals=[("timm", r"mobilenetv2_\d+d", "it is deeper than the published network")],
)


def _convert_timm_v3(state: Mapping[str, Tensor]) -> Weights:
    """Rename timm's parts; its head works on the pooled vector, and its norms have eps 1e-5 where ours have 1e-3."""
    modules = {"conv_stem": "features.0.0", "bn1": "features.0.1", "conv_head": "classifier.0"}
    modules["classifier"] = "classifier.3"
    for block, number in _timm_blocks(state).items():
        ours = f"features.{number}"
        if f"{block}.conv.weight" in state:
            modules |= {f"{block}.conv": f"{ours}.0", f"{block}.bn1": f"{ours}.1"}
            continue
        steps = ["conv_pw", "conv_dw", "conv_pwl"] if f"{block}.conv_pwl.weight" in state else ["conv_dw", "conv_pw"]
        gated = f"{block}.se.conv_reduce.weight" in state
        for index, step in enumerate(steps):
            place = index + (gated and step == steps[-1])
            modules[f"{block}.{step}"] = f"{ours}.block.{place}.0"
            modules[f"{block}.bn{index + 1}"] = f"{ours}.block.{place}.1"
        modules[f"{block}.se.conv_reduce"] = f"{ours}.block.attention.fc1"
        modules[f"{block}.se.conv_expand"] = f"{ours}.block.attention.fc2"
    weights = flatten_pointwise(rename_modules(state, modules), r"^classifier\.0\.")
    return change_norm_eps(weights, theirs=1e-5, ours=1e-3)


_NUMBERED_GATE = (r"^(features\.\d+\.block)\.\d+\.(fc[12])\.", r"\1.attention.\2.")

_V3 = Family(
    models=("mobilenet_v3_small", "mobilenet_v3_large"),
    head="classifier.3",
    stem="features.0.0",
    layouts=[
        Layout(
            "timm",
            _is_timm,
            _convert_timm_v3,
            ask="timm names the tensors of mobilenetv3_*_100 and tf_mobilenetv3_*_100 alike, though these pad and "
            "normalise otherwise",
        ),
        Layout("torchvision", _is_torchvision, lambda state: rename(state, [_NUMBERED_GATE])),
    ],
    originals=[
        *(Original("torchvision", name, name) for name in ("mobilenet_v3_small", "mobilenet_v3_large")),
        Original("timm", "mobilenetv3_small_100", "mobilenet_v3_small"),
        Original("timm", "mobilenetv3_large_100", "mobilenet_v3_large"),
    ],
    refusals=[
        (
            "timm",
            r"tf_mobilenetv3_.*",
            "it pads as TensorFlow does, more on the right and below than on the other sides",
        ),
        ("timm", r"mobilenetv3_(small|large)_(050|075)", "its last hidden layer keeps the full width"),
        ("timm", r"mobilenetv3_large_150d", "it is deeper than the published network"),
        ("timm", r"mobilenetv3_rw", "its gates use another activation, and its head has no bias"),
    ],
)


def _convert_timm_v1(state: Mapping[str, Tensor]) -> Weights:
    modules = {"conv_stem": "features.0.0", "bn1": "features.0.1"}
    parts = {"conv_dw": "depthwise.0", "bn1": "depthwise.1", "conv_pw": "pointwise.0", "bn2": "pointwise.1"}
    for block, number in _timm_blocks(state).items():
        modules |= {f"{block}.{theirs}": f"features.{number}.{ours}" for theirs, ours in parts.items()}
    return rename_modules(state, modules)


_V1 = Family(
    models=("mobilenet_v1",),
    head="classifier",
    stem="features.0.0",
    layouts=[
        Layout(
            "timm",
            _is_timm,
            _convert_timm_v1,
            ask="timm's MobileNetV1 clips at 6 (ReLU6), which tensors do not tell",
        ),
        Layout("the zoo", _is_torchvision, lambda state: rename(state, ())),
    ],
    originals=[
        Original("timm", "mobilenetv1_100", "mobilenet_v1", {"activation": "relu6"}),
        Original("timm", "mobilenetv1_125", "mobilenet_v1", {"activation": "relu6", "width_multiplier": 1.25}),
    ],
    refusals=[("timm", r"mobilenetv1_100h", "it has one more convolution before the classifier")],
)

FAMILIES = (_V1, _V2, _V3)
