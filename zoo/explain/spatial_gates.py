"""The spatial gates of a network as one map over the image."""

import torch
from torch import Tensor, nn

from zoo.explain.gates import read_gates
from zoo.explain.gradients import check_image
from zoo.explain.heatmap import Heatmap


def spatial_gates(model: nn.Module, images: Tensor, _class_index: int = 0) -> Heatmap:
    """Return how far the spatial gates let each place through: their mean, each spread over the image.

    The map does not depend on the class, and the skips around gated branches carry what the gates hold back.

    Args:
        model: A network with spatial gates, such as CBAM's.
        images: One image, (1, channels, height, width).

    Raises:
        ValueError: No gate of the model is spatial.
    """
    check_image(images)
    image_size = (images.shape[2], images.shape[3])
    gates = [gate for gate in read_gates(model, images).gates if gate.kind == "position"]
    if not gates:
        raise ValueError("the model has no spatial gate, which this map is made of")
    values = torch.stack([gate.cells.spread(gate.values, image_size) for gate in gates]).mean(0)
    return Heatmap("spatial_gates", "Spatial gates", values.clamp_min(0))
