"""What builds the gates: a mechanism by name or a function, with its options checked and its start proven."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from zoo.insertion.tracing import undisturbed
from zoo.registry import ATTENTION, suggest

FLOPS_PER_MAC = 2
PROBE_SIDE = 5


class Mechanism:
    """Builds gates for widths.

    Args:
        attention: A registered name, or a class or function that makes a gate from a number of channels.
        attention_args: Options of the mechanism.
        identity_start: Whether every gate must change nothing when it is new.

    Raises:
        ValueError: The name or an option is not known, or ``identity_start`` is given among the options.
    """

    def __init__(
        self,
        attention: str | Callable[..., nn.Module],
        attention_args: Mapping[str, Any] | None,
        *,
        identity_start: bool,
    ) -> None:
        make = ATTENTION[attention] if isinstance(attention, str) else attention
        if not callable(make):
            raise ValueError(f"attention ({attention!r}) must be a name or a function from a width to a module")
        self.is_registered = isinstance(attention, str)
        self.name: str = attention if isinstance(attention, str) else getattr(attention, "__name__", repr(attention))
        self.identity_start = identity_start
        self.parameters = inspect.signature(make).parameters
        self.args = dict(attention_args or {})
        self._check_options()
        if "identity_start" in self.parameters:
            self.args["identity_start"] = identity_start
        self._make = partial(make, **self.args)

    def _check_options(self) -> None:
        if "identity_start" in self.args:
            raise ValueError("identity_start is an argument of insert_attention itself, not one of attention_args")
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.parameters.values()):
            return
        known = [name for name, parameter in self.parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
        for option in self.args:
            if option not in known:
                hint = suggest(option, known)
                raise ValueError(
                    f"unknown option {option!r} of attention {self.name!r}.{hint} Known: {', '.join(known) or 'none'}"
                )

    @property
    def resolved_args(self) -> dict[str, Any]:
        """All options with their defaults, as the plain values of a model's config."""
        options = (parameter for parameter in self.parameters.values() if parameter.kind is parameter.KEYWORD_ONLY)
        values = {parameter.name: self.args.get(parameter.name, parameter.default) for parameter in options}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def build_for(self, feature_map: Tensor) -> nn.Module:
        """Make a gate for a map, from torch's global random generator, after trying it on a small random map.

        Raises:
            ValueError: It does not keep the shape of a map, or changes it although it should start at the identity.
        """
        channels = feature_map.shape[1]
        gate = self._make(channels)
        probe = torch.randn(2, channels, PROBE_SIDE, PROBE_SIDE, generator=torch.Generator().manual_seed(0))
        with undisturbed(gate):
            gated = gate(probe)
        if gated.shape != probe.shape:
            raise ValueError(
                f"attention {self.name!r} turns a map of {tuple(probe.shape)} into {tuple(gated.shape)}; "
                "a gate must keep the shape"
            )
        if self.identity_start and not torch.equal(gated, probe):
            why = (
                "does not start at the identity although its identity_start is on"
                if "identity_start" in self.parameters
                else "has no option identity_start and changes its input from the start"
            )
            raise ValueError(
                f"attention {self.name!r} {why}, so the network would no longer give its outputs; "
                "pass identity_start=False to accept that"
            )
        return gate.to(feature_map.device, feature_map.dtype)


def count_gate_macs(gate: nn.Module, channels: int, height: int, width: int) -> int:
    """Count the multiply-accumulates of a gate's convolutions and matrix products on one map."""
    tensor = next((tensor for tensor in (*gate.parameters(), *gate.buffers()) if tensor.is_floating_point()), None)
    like = torch.zeros(()) if tensor is None else tensor
    feature_map = torch.zeros(1, channels, height, width, device=like.device, dtype=like.dtype)
    with undisturbed(gate), FlopCounterMode(display=False) as counter:
        gate(feature_map)
    return counter.get_total_flops() // FLOPS_PER_MAC
