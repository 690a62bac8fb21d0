"""Vision transformers of timm and torchvision."""

import math
from collections.abc import Collection, Mapping

from torch import Tensor

from zoo.layers.positions import split_positions
from zoo.pretrained.name_maps.family import Family, Layout, Original, Piece, Weights, rename

_TIMM = (
    (r"^patch_embed\.proj\.", "embedding.projection."),
    (r"^cls_token$", "class_token"),
    (r"^reg_token$", "registers"),
    (r"^fc_norm\.", "head_norm."),
    (r"\.attn\.qkv\.", ".attention.query_key_value."),
    (r"\.attn\.q_norm\.", ".attention.query_norm."),
    (r"\.attn\.k_norm\.", ".attention.key_norm."),
    (r"\.attn\.proj\.", ".attention.projection."),
    (r"\.ls([12])\.gamma$", r".layer_scale\1.scale"),
)
_TORCHVISION = (
    (r"^conv_proj\.", "embedding.projection."),
    (r"^encoder\.pos_embedding$", "pos_embed"),
    (r"^encoder\.layers\.encoder_layer_", "blocks."),
    (r"^encoder\.ln\.", "norm."),
    (r"^heads\.head\.", "head."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.self_attention\.in_proj_", ".attention.query_key_value."),
    (r"\.self_attention\.out_proj\.", ".attention.projection."),
    (r"\.mlp\.(0|linear_1)\.", ".mlp.fc1."),
    (r"\.mlp\.(3|linear_2)\.", ".mlp.fc2."),
)


def _is_ours(names: Collection[str]) -> bool:
    return "embedding.projection.weight" in names


def _convert_timm(state: Mapping[str, Tensor]) -> Weights:
    return _split_positions(rename(state, _TIMM))


def _convert_torchvision(state: Mapping[str, Tensor]) -> Weights:
    return _split_positions(rename(state, _TORCHVISION))


def _split_positions(weights: Weights) -> Weights:
    """Cut the flat positions into those of the grid, which is square, and those of the tokens before it.

    How many tokens stand before the grid is what the weights hold of them, never a guess. Where these have no
    positions of their own, theirs are zeros, which add nothing.

    Raises:
        ValueError: The number of positions fits neither, or both.
    """
    positions = weights.pop("pos_embed", None)
    if positions is None:
        return weights
    before = [weights[name].tensor for name in ("class_token", "registers") if name in weights]
    num_before = sum(tokens.shape[1] for tokens in before)
    count = positions.tensor.shape[1]
    fits = [number for number in sorted({0, num_before}) if _is_square(count - number)]
    if len(fits) != 1:
        raise ValueError(
            f"{positions.origin} holds {count} positions, which are in {'no' if not fits else 'more than one'} way a "
            f"square grid, with or without the {num_before} tokens before it"
        )
    prefix, grid = split_positions(positions.tensor, num_prefix_tokens=fits[0])
    change = "flat positions cut into prefix and grid"
    weights["positions.grid"] = Piece(positions.origin, grid, change)
    if num_before:
        if not fits[0]:
            prefix = positions.tensor.new_zeros(1, num_before, positions.tensor.shape[-1])
            change = "zeros: the tokens before the grid have no positions there"
        weights["positions.prefix"] = Piece(positions.origin, prefix, change)
    return weights


def _is_square(count: int) -> bool:
    return count > 0 and math.isqrt(count) ** 2 == count


_SIZES = ("tiny", "small", "base")
_DEIT3 = {"layer_scale": 1e-6}

_VIT = Family(
    models=tuple(f"vit_{size}_patch16_224" for size in _SIZES),
    head="head",
    stem="embedding.projection",
    positions="positions.grid",
    layouts=[
        Layout("timm", lambda names: "patch_embed.proj.weight" in names, _convert_timm),
        Layout("torchvision", lambda names: "conv_proj.weight" in names, _convert_torchvision),
        Layout("the zoo", _is_ours, lambda state: rename(state, ())),
    ],
    originals=[
        Original("torchvision", "vit_b_16", "vit_base_patch16_224"),
        *(Original("timm", f"vit_{size}_patch16_224", f"vit_{size}_patch16_224") for size in _SIZES),
        *(
            Original("timm", f"vit_{size}_patch16_384", f"vit_{size}_patch16_224", {"image_size": 384})
            for size in _SIZES
        ),
        *(Original("timm", f"deit_{size}_patch16_224", f"vit_{size}_patch16_224") for size in _SIZES),
        *(Original("timm", f"deit3_{size}_patch16_224", f"vit_{size}_patch16_224", _DEIT3) for size in _SIZES[1:]),
    ],
    refusals=[
        ("timm", r"(vit|deit3?)_\w+_patch(8|14|32)_.*", "its patches are of another size"),
        (
            "timm",
            r"(vit|deit3)_(xsmall|little|medium\w?|betwixt|wee|pwee|large|huge|giant\w*|so\w+)_.*",
            "its width is another",
        ),
        ("timm", r"deit_\w+_distilled_.*", "it has a distillation token and two heads"),
        ("timm", r"vit_\w+_clip_.*", "it has a norm before the first block"),
        ("timm", r"vit_\w+_siglip_.*", "it pools by a block of cross attention, or has no class token"),
        ("timm", r"vit_\w+_(miil|gap|rpn|xp|plus|36x1|18x2).*", "its blocks, tokens or norms are others"),
        ("torchvision", r"vit_.*", "its patches or its width are others"),
    ],
)

_SMALL_IMAGES = Family(
    models=tuple(f"vit_{size}_patch4_32" for size in _SIZES[:2]),
    head="head",
    stem="embedding.projection",
    positions="positions.grid",
    layouts=[
        Layout("timm", lambda names: "patch_embed.proj.weight" in names, _convert_timm),
        Layout("the zoo", _is_ours, lambda state: rename(state, ())),
    ],
    originals=[],
)

_COMPACT = Family(
    models=("cct_2_3x2_32", "cct_7_3x1_32"),
    head="head",
    stem="embedding.layers.0",
    positions="positions.grid",
    layouts=[Layout("the zoo", lambda names: "embedding.layers.0.weight" in names, lambda state: rename(state, ()))],
    originals=[],
)

FAMILIES = (_VIT, _SMALL_IMAGES, _COMPACT)
