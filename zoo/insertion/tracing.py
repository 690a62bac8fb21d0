"""One forward pass that is watched and leaves no trace: which maps pass where, and through which gates."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from zoo.insertion.families import Side
from zoo.insertion.placement import enclosing
from zoo.models.backbone import Backbone
from zoo.registry import ATTENTION

DEFAULT_IMAGE_SIZE = (224, 224)

GATE_CLASSES = (
    *("SE", "SELayer", "SEModule", "SEBlock", "SE_*", "EffectiveSEModule", "*Squeeze*Excit*"),
    *("ECA", "ECALayer", "ECAModule", "EcaModule", "CecaModule", "eca_*", "GatherExcite", "GlobalContext"),
    *("CBAM", "CBAMModule", "*CbamModule", "ChannelGate", "SpatialGate", "ChannelAttention", "SpatialAttention"),
)
"""Classes taken for gates of the network's own, by name: those of torchvision and timm, and what people write."""


@dataclass
class Sight:
    """What was seen of one module in the pass.

    Args:
        order: Position among the modules watched, in the order in which they first ran; -1 for one that did not.
        num_calls: How often it ran.
        num_enclosing_calls: How often the nearest module around it ran.
        value: What it was given or returned last.
        num_channels: All widths seen, when the values were maps.
        gate: Name of a gate of the network's own that already acts on the map, or is the module itself.
    """

    order: int = -1
    num_calls: int = 0
    num_enclosing_calls: int = 0
    value: Any = None
    num_channels: tuple[int, ...] = ()
    gate: str | None = None

    @property
    def channels(self) -> int:
        """The width of the map; 0 where none was seen."""
        return max(self.num_channels, default=0)


def example_for(model: nn.Module, example_input: Any = None) -> tuple[Any, ...]:
    """Return the arguments to call the model with: the given example, or one random image of the size it is made for.

    Args:
        model: Any network.
        example_input: A tuple of arguments, or a single argument; ``None`` for one image.

    Returns:
        The arguments; the image comes from a generator of its own.
    """
    if example_input is not None:
        return example_input if isinstance(example_input, tuple) else (example_input,)
    return (random_images(model, (1, *_image_size(model))),)


def random_images(model: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """Return random images where the model is and in its dtype, from a generator of their own, always the same."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return images.to(parameter.device, parameter.dtype)


def _image_size(model: nn.Module) -> tuple[int, int, int]:
    known = getattr(model, "pretrained_cfg", None)  # timm
    if isinstance(known, Mapping) and known.get("input_size"):
        channels, height, width = known["input_size"]
    else:
        is_own = isinstance(model, Backbone) and hasattr(model, "config")
        channels, (height, width) = 3, cast(Backbone, model).image_size if is_own else DEFAULT_IMAGE_SIZE
    first = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    return (channels if first is None else first.in_channels), height, width


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run the model in eval mode without gradients; modes, buffers and random generators come back as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = {tensor.device for tensor in model.parameters() if tensor.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=list(devices)), torch.no_grad():
            for module, _ in modes:
                module.training = False
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                if buffer.device.type != "meta" and not torch.equal(buffer, before):
                    buffer.copy_(before)


def run(model: nn.Module, example: tuple[Any, ...]) -> Any:
    """Call the model.

    Raises:
        ValueError: The model does not take the example.
    """
    try:
        return model(*example)
    except Exception as error:
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in tree_leaves(example) if isinstance(leaf, Tensor))
        raise ValueError(
            f"the model cannot be run on an input of {shapes} ({type(error).__name__}: {error}); pass "
            "example_input, the arguments that its forward takes"
        ) from error


def watch(model: nn.Module, targets: Mapping[str, Side], example: tuple[Any, ...]) -> tuple[dict[str, Sight], Any]:
    """Run the model once and return what was seen of each target, and what the model returned.

    Args:
        model: Any network.
        targets: Qualified names of modules, and which side of each is looked at.
        example: The arguments.

    Raises:
        ValueError: The model does not take the example.
    """
    watcher = _Watcher(model, targets)
    with undisturbed(model), watcher.hooked():
        output = run(model, example)
    return watcher.sights(), output


class _Watcher:
    """Hooks on the targets, on the modules around them and on whatever looks like a gate."""

    def __init__(self, model: nn.Module, targets: Mapping[str, Side]) -> None:
        self.targets = targets
        self.modules = dict(model.named_modules())
        self.seen = {name: Sight() for name in targets}
        self.widths: dict[str, set[int]] = {name: set() for name in targets}
        self.calls: Counter[str] = Counter()
        self.gate_given: dict[str, Any] = {}
        self.gate_returned: dict[str, Any] = {}

    @contextmanager
    def hooked(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, side in self.targets.items():
                look = self._look_at(name)
                module = self.modules[name]
                handle = (
                    module.register_forward_hook(lambda _, __, output, look=look: look(output))
                    if side == "output"
                    else module.register_forward_pre_hook(lambda _, inputs, look=look: look(inputs[0]))
                )
                stack.callback(handle.remove)
            for around in {around for name in self.targets for around in enclosing(name)}:
                handle = self.modules[around].register_forward_pre_hook(self._count(around))
                stack.callback(handle.remove)
            for name, module in self.modules.items():
                if is_gate(module):
                    stack.callback(module.register_forward_hook(self._follow(name)).remove)
            yield

    def _look_at(self, name: str) -> Any:
        sight = self.seen[name]

        def look(value: Any) -> None:
            if sight.num_calls == 0:
                sight.order = sum(other.num_calls > 0 for other in self.seen.values())
            sight.num_calls += 1
            sight.value = value
            if is_feature_map(value):
                self.widths[name].add(value.shape[1])

        return look

    def _count(self, name: str) -> Any:
        def count(*_: Any) -> None:
            self.calls[name] += 1

        return count

    def _follow(self, name: str) -> Any:
        def follow(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if inputs and is_feature_map(inputs[0]) and is_feature_map(output) and inputs[0].shape == output.shape:
                self.gate_given[name], self.gate_returned[name] = inputs[0], output

        return follow

    def sights(self) -> dict[str, Sight]:
        """Return what was seen, each target with the outermost gate that its map passes."""
        for name, sight in self.seen.items():
            sight.num_channels = tuple(sorted(self.widths[name]))
            sight.num_enclosing_calls = next(
                (self.calls[around] for around in enclosing(name) if self.calls[around]), 1
            )
            passed = [
                gate
                for gate, given in self.gate_given.items()
                if gate == name or (sight.value is not None and self._passes(gate, given, sight.value))
            ]
            sight.gate = min(passed, key=len, default=None)
        return self.seen

    def _passes(self, gate: str, given: Any, value: Any) -> bool:
        return given is value or self.gate_returned[gate] is value


def is_gate(module: nn.Module) -> bool:
    """Return whether a module is a mechanism of the zoo or, by the name of its class, somebody else's gate."""
    is_known = any(type(module) is mechanism for mechanism in ATTENTION.values())
    named_so = any(fnmatchcase(type(module).__name__, pattern) for pattern in GATE_CLASSES)
    return is_known or (named_so and next(module.parameters(), None) is not None)


def is_feature_map(value: Any) -> bool:
    """Return whether a value is a floating-point tensor (batch, channels, height, width)."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 4 and not value.is_quantized


def largest_difference(before: Any, after: Any) -> float | None:
    """Return the largest absolute difference of two outputs; ``None`` where they cannot be compared."""
    old_leaves, new_leaves = tree_leaves(before), tree_leaves(after)
    pairs = zip(old_leaves, new_leaves, strict=False)
    tensors = [(old, new) for old, new in pairs if isinstance(old, Tensor) and isinstance(new, Tensor)]
    if (
        not tensors
        or len(old_leaves) != len(new_leaves)
        or any(old.shape != new.shape or old.device.type == "meta" for old, new in tensors)
    ):
        return None
    return max(
        (0.0 if torch.equal(old, new) else (old.double() - new.double()).abs().max().item() for old, new in tensors),
    )
