"""Everything that is shown of one answer of one network to one image."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from zoo.explain.gates import GateReading, read_gates
from zoo.explain.gradients import predict
from zoo.explain.heatmap import Heatmap
from zoo.explain.integrated_gradients import Completeness, attribute
from zoo.explain.methods import REFERENCE, explain_with, suitable_methods
from zoo.explain.placement import Placement
from zoo.explain.token_weights import TokenAttention, read_token_attention
from zoo.explain.trust.concentration import Concentration, concentrations
from zoo.explain.trust.measurement import Trust, measure_trust
from zoo.preprocessing import Preprocessing


@dataclass(frozen=True)
class Explanation:
    """One answer of one network, explained.

    Args:
        network: What the network is called.
        title: What the image is called.
        pixels: The image as it is, uint8 (height, width, 3).
        placement: Where the network's input lies on it.
        class_names: In the order of the logits.
        probabilities: Of each class, (num_classes,).
        class_index: The class that is explained.
        heatmaps: By method.
        gates: What gates multiply by.
        attention: Weights of attention over tokens; ``None`` for a network without.
        concentrations: How the weights of gates and attention are divided.
        completeness: What integrated gradients add up to; ``None`` where they were not asked for.
        trust: How far to trust the maps; ``None`` where it was not measured.
    """

    network: str
    title: str
    pixels: npt.NDArray[np.uint8]
    placement: Placement
    class_names: tuple[str, ...]
    probabilities: Tensor
    class_index: int
    heatmaps: dict[str, Heatmap]
    gates: GateReading
    attention: TokenAttention | None
    concentrations: tuple[Concentration, ...]
    completeness: Completeness | None
    trust: Trust | None

    @property
    def class_name(self) -> str:
        """Name of the class that is explained."""
        return self.class_names[self.class_index]

    @property
    def answer(self) -> int:
        """The class that the network finds most likely."""
        return int(self.probabilities.argmax())


def explain_image(
    model: nn.Module,
    image: Image.Image,
    *,
    preprocessing: Preprocessing,
    class_names: Sequence[str],
    class_index: int | None = None,
    methods: Sequence[str] | None = None,
    trust: bool = True,
    seed: int = 0,
    network: str = "network",
    title: str = "image",
    say: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Explain what a network answers to an image.

    Args:
        model: Maps images to logits; any network of the zoo, or any other with gates inserted or none.
        image: Upright, of any size.
        preprocessing: How the network wants it.
        class_names: In the order of the logits.
        class_index: The class to explain; ``None`` for the most likely one.
        methods: Names out of :data:`zoo.explain.methods.METHODS`; ``None`` for all that suit the model.
        trust: Measure how far to trust the maps, which takes most of the time.
        seed: Of all that is drawn by lot.
        network: What the network is called.
        title: What the image is called.
        say: Told what is being done.

    Raises:
        ValueError: A class or method does not exist or suit the model, or the model gives no finite logits.
    """
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    images = preprocessing(image).unsqueeze(0).to(parameter.device, parameter.dtype)
    probabilities = predict(model, images)[0].softmax(0)
    if len(class_names) != len(probabilities):
        raise ValueError(f"there are {len(class_names)} class names for {len(probabilities)} logits")
    if class_index is None:
        class_index = int(probabilities.argmax())
    if not 0 <= class_index < len(probabilities):
        raise ValueError(f"class_index ({class_index}) must be from 0 to {len(probabilities) - 1}")
    names = suitable_methods(model, images, methods)
    if trust and REFERENCE not in names:
        raise ValueError(f"trust is measured beside {REFERENCE}: add it to methods ({', '.join(names)}) or go without")
    heatmaps: dict[str, Heatmap] = {}
    completeness: Completeness | None = None
    for name in names:
        say(name.replace("_", " "))
        if name == REFERENCE:
            heatmaps[name], completeness = attribute(model, images, class_index)
        else:
            heatmaps[name] = explain_with(name, model, images, class_index)
    gates, attention = read_gates(model, images), read_token_attention(model, images)
    divided = concentrations(gates.gates, attention)
    measured = None
    if trust:
        assert completeness is not None
        measured = measure_trust(model, images, class_index, heatmaps, completeness, divided, seed=seed, say=say)
    return Explanation(
        network=network,
        title=title,
        pixels=np.asarray(image.convert("RGB")),
        placement=Placement.of(image, preprocessing),
        class_names=tuple(class_names),
        probabilities=probabilities,
        class_index=class_index,
        heatmaps=heatmaps,
        gates=gates,
        attention=attention,
        concentrations=divided,
        completeness=completeness,
        trust=measured,
    )
