"""ResNets: of torchvision and timm, with and without squeeze-and-excitation, and the usual CIFAR repositories."""

from collections.abc import Mapping

from torch import Tensor

from zoo.pretrained.name_maps.family import Family, Layout, Original, Weights, flatten_pointwise, rename

_RULES = (
    # timm's squeeze-and-excitation
    (r"\.se\.fc1\.", ".attention.mlp.0."),
    (r"\.se\.fc2\.", ".attention.mlp.2."),
    # the CIFAR repositories of akamaster and kuangliu
    (r"^linear\.", "fc."),
    (r"\.shortcut\.", ".downsample."),
)


def _convert(state: Mapping[str, Tensor]) -> Weights:
    return flatten_pointwise(rename(state, _RULES), r"\.attention\.mlp\.")


_DEPTHS = (18, 34, 50, 101)
_SE = {"attention": "se", "attention_args": {"reduction_ratio": 16, "min_hidden_channels": 8}}
"""timm rounds the hidden width to a multiple of 8; at these widths that is a sixteenth, and at least 8."""

_RESNET = Family(
    models=(*(f"resnet{depth}" for depth in (20, 32, 44, 56, 110)), *(f"resnet{depth}" for depth in _DEPTHS)),
    head="fc",
    stem="conv1",
    layouts=[Layout("torchvision, timm, akamaster or kuangliu", lambda names: "conv1.weight" in names, _convert)],
    originals=[
        *(Original("torchvision", f"resnet{depth}", f"resnet{depth}") for depth in _DEPTHS),
        *(Original("timm", f"resnet{depth}", f"resnet{depth}") for depth in _DEPTHS),
        *(Original("timm", f"seresnet{depth}", f"resnet{depth}", _SE) for depth in _DEPTHS),
    ],
    refusals=[
        (
            "timm",
            r"legacy_seresnet\d+",
            "it pools after the stem without padding, and strides in the first 1x1 convolution of a block",
        ),
        (
            "timm",
            r"(se|eca|cbam_?)?resnet(aa)?\d+(c|d|s|t|ts|aa)",
            "it has a stem of three convolutions or pools by averaging in its shortcuts",
        ),
        ("timm", r"resnet\d+_gn", "it normalises groups, not batches"),
        ("timm", r"(tv_|seresnext|resnext|ig_|wide_resnet).*", "its blocks are grouped or wider inside"),
        ("torchvision", r"(resnext|wide_resnet).*", "its blocks are grouped or wider inside"),
    ],
)

FAMILIES = (_RESNET,)
