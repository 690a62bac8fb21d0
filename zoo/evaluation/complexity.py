"""What a network costs before it is run: parameters and multiply-accumulates, attention included.

The unit is the MAC; 1 MAC is 2 FLOPs. Counted are the products of contractions: convolutions, matrix products and both
products of scaled dot-product attention, whichever kernel computes them, masked scores included: a sparse attention
costs the pairs that its blocks load. Not counted are biases, norms, activations, pooling and element-wise products such
as the multiplication of a map by its gate.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.evaluation.predictions import evaluation_mode
from zoo.functional.flash_attention import FLASH_OPERATOR
from zoo.functional.validation import check_positive_int
from zoo.models.parameter_count import count_parameters

aten = torch.ops.aten


def count_macs(model: nn.Module, input_size: tuple[int, int, int]) -> int:
    """Count the multiply-accumulates of the contractions in the forward pass of one image.

    The pass runs in evaluation mode on tensors without storage, so it takes no memory for activations, and mode,
    weights, statistics and device of the model stay as they are. See the module for what is counted.

    Args:
        model: Any network that maps one image batch to anything; the count is that of ``model.eval()``.
        input_size: Channels, height and width of the image, each at least 1.

    Returns:
        MACs; twice as many FLOPs.

    Raises:
        ValueError: ``input_size`` is no triple of positive integers.

    >>> count_macs(nn.Conv2d(3, 8, 3, padding=1), (3, 32, 32)) == 32 * 32 * 8 * 3 * 3 * 3
    True
    """
    return _profile(model, input_size, {}).macs


@dataclass(frozen=True)
class GateCost:
    """One gate of a network.

    ``hidden_channels`` is ``None`` for a gate without a hidden layer, ``stage`` for a network without stages;
    ``height`` and ``width`` are those of the gated map.
    """

    name: str
    kind: str
    stage: int | None
    channels: int
    hidden_channels: int | None
    height: int
    width: int
    parameters: int
    macs: int


@dataclass(frozen=True)
class ModelDescription:
    """Size and cost of a network at one input size, and all its gates in the order in which they ran."""

    input_size: tuple[int, int, int]
    parameters: int
    macs: int
    gates: tuple[GateCost, ...]

    @property
    def attention_parameters(self) -> int:
        """Parameters of all gates."""
        return sum(gate.parameters for gate in self.gates)

    @property
    def attention_macs(self) -> int:
        """MACs of all gates."""
        return sum(gate.macs for gate in self.gates)

    @property
    def attention_parameter_share(self) -> float:
        """Share of the gates in the parameters, 0 to 1."""
        return self.attention_parameters / self.parameters if self.parameters else 0.0

    @property
    def attention_mac_share(self) -> float:
        """Share of the gates in the MACs, 0 to 1."""
        return self.attention_macs / self.macs if self.macs else 0.0


def describe_model(model: nn.Module, input_size: tuple[int, int, int]) -> ModelDescription:
    """Measure a network and each of its gates: the modules in slots named ``attention`` that take a feature map.

    Args:
        model: Any network; one of the zoo's backbones also tells the stages.
        input_size: Channels, height and width of the image, each at least 1.

    Raises:
        ValueError: ``input_size`` is no triple of positive integers.

    >>> import zoo
    >>> description = describe_model(zoo.create_model("resnet20", attention="se"), (3, 32, 32))
    >>> [(gate.name, gate.channels, gate.hidden_channels) for gate in description.gates][::4]
    [('layer1.0.attention', 16, 1), ('layer2.1.attention', 32, 2), ('layer3.2.attention', 64, 4)]
    """
    gates = _gates(model)
    stages = {place.name: place.stage for place in getattr(model, "attention_places", tuple)()}
    profile = _profile(model, input_size, gates)
    costs = []
    for name, (_, channels, height, width) in profile.map_shapes.items():
        gate = gates[name]
        costs.append(
            GateCost(
                name=name,
                kind=type(gate).__name__,
                stage=stages.get(name),
                channels=channels,
                hidden_channels=_hidden_channels(gate),
                height=height,
                width=width,
                parameters=count_parameters(gate),
                macs=profile.macs_within[name],
            )
        )
    return ModelDescription(input_size, count_parameters(model), profile.macs, tuple(costs))


def _gates(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules named ``attention``, without those inside another one."""
    gates: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == "attention" and not any(name.startswith(f"{outer}.") for outer in gates):
            gates[name] = module
    return gates


def _hidden_channels(gate: nn.Module) -> int | None:
    widths = (getattr(module, "hidden_channels", None) for module in gate.modules())
    return next((width for width in widths if isinstance(width, int)), None)


def _convolution_macs(arguments: tuple[Any, ...], output: Tensor) -> int:
    features, weight, transposed = arguments[0], arguments[1], arguments[6]
    return (features if transposed else output).numel() * weight[0].numel()


def _product_macs(left: Tensor, right: Tensor) -> int:
    """Every row of ``left`` (..., rows, inner) meets every column of ``right`` (..., inner, columns)."""
    return left.numel() * right.shape[-1]


def _attention_macs(arguments: tuple[Any, ...], _: Any) -> int:
    """``query key^T`` and ``weights value`` over (batch, heads, tokens, head_dim)."""
    query, key, value = arguments[:3]
    scores = math.prod(query.shape[:-1]) * key.shape[-2]
    return scores * (query.shape[-1] + value.shape[-1])


MAC_FORMULAS: dict[Any, Callable[[tuple[Any, ...], Any], int]] = {
    aten.convolution: _convolution_macs,
    aten._convolution: _convolution_macs,
    aten.mm: lambda arguments, _: _product_macs(arguments[0], arguments[1]),
    aten.bmm: lambda arguments, _: _product_macs(arguments[0], arguments[1]),
    aten.addmm: lambda arguments, _: _product_macs(arguments[1], arguments[2]),
    aten.baddbmm: lambda arguments, _: _product_macs(arguments[1], arguments[2]),
    aten.mv: lambda arguments, _: arguments[0].numel(),
    aten.addmv: lambda arguments, _: arguments[1].numel(),
    aten.dot: lambda arguments, _: arguments[0].numel(),
    aten._scaled_dot_product_flash_attention: _attention_macs,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention_macs,
    aten._scaled_dot_product_efficient_attention: _attention_macs,
    aten._scaled_dot_product_cudnn_attention: _attention_macs,
    aten._scaled_dot_product_fused_attention_overrideable: _attention_macs,
    FLASH_OPERATOR: _attention_macs,
}
"""MACs of each operator that contracts, from its arguments and its output; a new kernel's operator is added here."""


class _Profile(TorchDispatchMode):
    """Adds up the MACs of all operators that run inside, and those within each watched module."""

    def __init__(self) -> None:
        super().__init__()
        self.macs = 0
        self.macs_within: dict[str, int] = {}
        self.map_shapes: dict[str, tuple[int, ...]] = {}
        self._active: list[str] = []

    def __torch_dispatch__(
        self, function: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = MAC_FORMULAS.get(function.overloadpacket)
        output = function(*args, **kwargs)
        if formula is not None:
            macs = formula(args, output)
            self.macs += macs
            for name in self._active:
                self.macs_within[name] += macs
        return output

    @contextmanager
    def watching(self, modules: Mapping[str, nn.Module]) -> Iterator[None]:
        """Book separately what runs inside each of the modules."""
        with ExitStack() as stack:
            for name, module in modules.items():
                self.macs_within[name] = 0
                enter, leave = self._hooks(name)
                stack.callback(module.register_forward_pre_hook(enter).remove)
                stack.callback(module.register_forward_hook(leave).remove)
            yield

    def _hooks(self, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs[0].ndim == 4:
                self.map_shapes[name] = tuple(inputs[0].shape)
            self._active.append(name)

        def leave(*_: Any) -> None:
            self._active.remove(name)

        return enter, leave


def _profile(model: nn.Module, input_size: tuple[int, int, int], watched: Mapping[str, nn.Module]) -> _Profile:
    if len(input_size) != 3:
        raise ValueError(f"input_size ({input_size}) must be channels, height and width")
    for label, size in zip(("channels", "height", "width"), input_size, strict=True):
        check_positive_int(f"input_size {label}", size)
    state: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    dtype = next((tensor.dtype for tensor in state.values() if tensor.is_floating_point()), torch.float32)
    profile = _Profile()
    # Inference mode would hide the matrix products inside composite operators such as linear.
    with torch.inference_mode(False), torch.no_grad(), evaluation_mode(model), profile.watching(watched), profile:
        meta_state = {name: torch.empty_like(tensor, device="meta") for name, tensor in state.items()}
        functional_call(model, meta_state, (torch.empty(1, *input_size, dtype=dtype, device="meta"),))
    return profile
