"""What the gates of a network multiply their maps by: read exactly, from any mechanism that only multiplies."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.evaluation.predictions import evaluation_mode
from zoo.explain.cells import Cells, follow_cells
from zoo.insertion.attachment import inserted_gates
from zoo.insertion.tracing import is_feature_map, is_gate
from zoo.layers.token_self_attention import TokenSelfAttention
from zoo.models.backbone import Backbone

Kind = Literal["channel", "position"]

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_LOOSE_TOLERANCE = 5e-2


@dataclass(frozen=True)
class Gate:
    """What a map is multiplied by for one image; 1 changes nothing.

    Args:
        name: Qualified name of the module; followed by `` #2`` when it runs a second time.
        stage: Stage of the network, counted from 1.
        kind: One factor per ``channel``, or one per ``position``.
        values: float32 (channels,) or (rows, columns).
        cells: Where the positions lie on the network's input.
    """

    name: str
    stage: int
    kind: Kind
    values: Tensor
    cells: Cells

    @property
    def mean_distance(self) -> float:
        """Mean distance of the factors from 1: how much the gate does at all."""
        return float((self.values - 1).abs().mean())

    def farthest(self, count: int) -> list[int]:
        """Return the channels whose factors are unlike the others', farthest from the mean factor first."""
        order = (self.values - self.values.mean()).abs().argsort(descending=True, stable=True)
        return [int(channel) for channel in order[:count]]


@dataclass(frozen=True)
class GateReading:
    """All gates of a network for one image.

    Args:
        gates: In the order in which they ran; a mechanism that gates twice gives two.
        unread: Modules that do more than multiply, so that no factor tells what they do.
    """

    gates: tuple[Gate, ...]
    unread: tuple[str, ...]


def find_gate_modules(model: nn.Module) -> dict[str, tuple[nn.Module, int | None]]:
    """Return the gates of feature maps by qualified name, and their stage where the network tells it.

    Those of the zoo's networks, inserted ones, and those that other libraries' networks are built with, known by the
    names of their classes; of gates within gates the outer one.
    """
    found: dict[str, tuple[nn.Module, int | None]] = {}
    for prefix, module in model.named_modules():
        if isinstance(module, Backbone):
            for place in module.attention_places():
                name = f"{prefix}.{place.name}".lstrip(".")
                found[name] = (model.get_submodule(name), place.stage)
    for gate in inserted_gates(model):
        found.setdefault(gate.name, (gate.module, None))
    for name, module in model.named_modules():
        if is_gate(module):
            found.setdefault(name, (module, None))
    outermost = {name: gate for name, gate in found.items() if not any(name.startswith(f"{other}.") for other in found)}
    return {name: gate for name, gate in outermost.items() if not isinstance(gate[0], TokenSelfAttention)}


@torch.no_grad()
def read_gates(model: nn.Module, images: Tensor) -> GateReading:
    """Return what every gate multiplies its map by, for one image.

    The network runs as ever, on its fast path. Each gate then sees its map once more while its multiplications are
    watched, and only factors whose product gives what the network went on with count as read.

    Args:
        model: Any network.
        images: One image, (1, channels, height, width).
    """
    modules = find_gate_modules(model)
    image_size = (images.shape[2], images.shape[3])
    runs: list[tuple[str, Tensor, Tensor]] = []
    with evaluation_mode(model), ExitStack() as stack:
        tracker = stack.enter_context(follow_cells(model, image_size))
        for name, (module, _) in modules.items():

            def keep(_: nn.Module, inputs: tuple[Any, ...], output: Any, name: str = name) -> None:
                if inputs and is_feature_map(inputs[0]) and is_feature_map(output):
                    runs.append((name, inputs[0].clone(), output.clone()))

            stack.callback(module.register_forward_hook(keep).remove)
        model(images)
        stack.pop_all().close()
        gates: list[Gate] = []
        unread: list[str] = []
        sizes: list[tuple[int, int]] = []
        for number, (name, given, returned) in enumerate(runs):
            module, stage = modules[name]
            size = (given.shape[2], given.shape[3])
            sizes += [] if size in sizes else [size]
            repeats = sum(earlier == name for earlier, *_ in runs[:number])
            label = name if repeats == 0 else f"{name} #{repeats + 1}"
            factors = read_factors(module, given, returned)
            if factors is None:
                unread.append(label)
                continue
            for kind, factor in factors:
                values = factor[0, :, 0, 0] if kind == "channel" else factor[0, 0]
                stage_number = stage if stage is not None else sizes.index(size) + 1
                gates.append(Gate(label, stage_number, kind, values.float().cpu(), tracker.of(size)))
    return GateReading(tuple(gates), tuple(unread))


def read_factors(module: nn.Module, given: Tensor, returned: Tensor) -> list[tuple[Kind, Tensor]] | None:
    """Return what a gate multiplies a map by, in its order; ``None`` where that does not explain what it returned.

    Args:
        module: The gate, in eval mode.
        given: The map it was given, (batch, channels, height, width).
        returned: What it made of it.

    Returns:
        Factors (batch, channels, 1, 1) or (batch, 1, height, width).
    """
    with _Multiplications(given) as seen:
        module.forward(given)
    factors = list(seen.factors())
    if not factors:
        return None
    product = given.double()
    for _, factor in factors:
        product = product * factor.double()
    tolerance = _TOLERANCE.get(given.dtype, _LOOSE_TOLERANCE)
    largest = float(returned.double().abs().max())
    if float((product - returned.double()).abs().max()) > tolerance * max(largest, 1e-12):
        return None
    return factors


class _Multiplications(TorchDispatchMode):
    """Notes each product of the map, or of an earlier product, with factors per channel or position."""

    def __init__(self, feature_map: Tensor) -> None:
        super().__init__()
        self._maps = [feature_map]
        self._factors: list[Tensor] = []

    def factors(self) -> Iterator[tuple[Kind, Tensor]]:
        batch, channels, height, width = self._maps[0].shape
        for factor in self._factors:
            shape = tuple(factor.shape)
            if shape[1:] == (channels, 1, 1):
                yield "channel", factor.expand(batch, -1, -1, -1)
            elif shape[1:] == (1, height, width):
                yield "position", factor.expand(batch, -1, -1, -1)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.mul.Tensor, torch.ops.aten.mul_.Tensor):
            self._note(args[0], args[1], result)
        return result

    def _note(self, left: Any, right: Any, result: Tensor) -> None:
        for feature_map, factor in ((left, right), (right, left)):
            if self._is_known(feature_map) and isinstance(factor, Tensor) and factor.dim() == 4:
                self._factors.append(_without_repeats(factor).clone())
                self._maps.append(result)
                return

    def _is_known(self, value: Any) -> bool:
        return isinstance(value, Tensor) and any(
            value is known or (value.shape == known.shape and value.data_ptr() == known.data_ptr())
            for known in self._maps
        )


def _without_repeats(factor: Tensor) -> Tensor:
    """Shrink axes along which a tensor was only expanded to size 1."""
    for axis, stride in enumerate(factor.stride()):
        if axis > 0 and stride == 0:
            factor = factor.narrow(axis, 0, 1)
    return factor
