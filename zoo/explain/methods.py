"""Which explanations suit a network, by name."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from zoo.explain.attention_rollout import attention_rollout, last_attention
from zoo.explain.gates import find_gate_modules, read_gates
from zoo.explain.grad_cam import grad_cam
from zoo.explain.heatmap import Heatmap
from zoo.explain.integrated_gradients import integrated_gradients
from zoo.explain.occlusion import occlusion
from zoo.explain.spatial_gates import spatial_gates
from zoo.explain.token_weights import find_token_attention
from zoo.registry import suggest

Method = Callable[[nn.Module, Tensor, int], Heatmap]

METHODS: dict[str, Method] = {
    "spatial_gates": spatial_gates,
    "last_attention": last_attention,
    "attention_rollout": attention_rollout,
    "grad_cam": grad_cam,
    "occlusion": occlusion,
    "integrated_gradients": integrated_gradients,
}
"""Each takes a model, one image (1, channels, height, width) and a class, and returns a map of the image's size."""

REFERENCE = "integrated_gradients"


def suitable_methods(model: nn.Module, images: Tensor, wanted: Sequence[str] | None = None) -> list[str]:
    """Return the methods that can explain the model's answer to an image.

    Args:
        model: Maps images to logits.
        images: One image, (1, channels, height, width).
        wanted: Names out of :data:`METHODS`; ``None`` for all that suit the model.

    Raises:
        ValueError: A method is not known, or does not suit the model.
    """
    has_tokens = bool(find_token_attention(model))
    suitable = dict.fromkeys(METHODS, True)
    suitable["last_attention"] = suitable["attention_rollout"] = has_tokens
    suitable["spatial_gates"] = bool(find_gate_modules(model)) and any(
        gate.kind == "position" for gate in read_gates(model, images).gates
    )
    for name in wanted or ():
        if name not in METHODS:
            raise ValueError(f"unknown method {name!r}.{suggest(name, list(METHODS))} Known: {', '.join(METHODS)}")
        if not suitable[name]:
            fits = ", ".join(method for method, fitting in suitable.items() if fitting)
            raise ValueError(f"method {name!r} does not suit the model; those that do: {fits}")
    return [name for name in METHODS if suitable[name] and (wanted is None or name in wanted)]


def explain_with(name: str, model: nn.Module, images: Tensor, class_index: int) -> Heatmap:
    """Return the map of one method out of :data:`METHODS`, with torch's random state left alone."""
    with torch.random.fork_rng(devices=[]):
        return METHODS[name](model, images, class_index)
