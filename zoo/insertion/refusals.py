"""What is no ground for a gate, each with the sentence that says why."""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from zoo.insertion.placement import Place
from zoo.insertion.tracing import Sight, is_feature_map

_QUANTISED_MODULE = re.compile(r"\.(quantized|qat)\b")
_WRAPPERS = {"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}


def check_insertable(model: nn.Module) -> None:
    """Refuse a model whose forward pass a new child or hook would not reach.

    Raises:
        ValueError: It is no module, or is scripted, quantised, compiled, wrapped for several devices, or not yet
            initialised.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    for name, module in model.named_modules():
        kind, label = type(module), name or "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"{label} is scripted: its forward pass is fixed. Insert before torch.jit.script or trace")
        if getattr(module, "_compiled_call_impl", None) is not None or kind.__name__ == "OptimizedModule":
            raise ValueError(f"{label} is compiled, and would go on without the gates. Insert before torch.compile")
        if wrapper := _WRAPPERS.intersection(base.__name__ for base in kind.__mro__):
            raise ValueError(f"{label} is a {wrapper.pop()}. Insert into the network before it is wrapped")
        if _QUANTISED_MODULE.search(kind.__module__) or any(map(_is_quantised, vars(module).values())):
            raise ValueError(f"{label} ({kind.__name__}) is quantised; gates compute in floating point. Insert before")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise ValueError(f"{name} has no shape yet. Run the model once before inserting")
        if _is_quantised(tensor):
            raise ValueError(f"{name} is quantised; gates compute in floating point. Insert before")


def _is_quantised(value: object) -> bool:
    return isinstance(value, Tensor) and (value.is_quantized or type(value).__module__.startswith("torchao."))


def check_sight(model: nn.Module, place: Place, sight: Sight) -> None:
    """Refuse a place where a gate would not run, would run for two places, or would find no feature map.

    Raises:
        ValueError: With what was seen there.
    """
    module = model.get_submodule(place.target)
    label = f"{place.target} ({type(module).__name__})"
    names = [name for name, other in model.named_modules(remove_duplicate=False) if other is module]
    if len(names) > 1:
        raise ValueError(f"{label} is shared, under the names {', '.join(names)}; one gate would serve all of them")
    if sight.num_calls == 0:
        raise ValueError(f"{label} did not run in the traced pass; a gate there would have no effect")
    if not is_feature_map(sight.value):
        what = tuple(sight.value.shape) if isinstance(sight.value, Tensor) else type(sight.value).__name__
        dtype = f" of {sight.value.dtype}" if isinstance(sight.value, Tensor) else ""
        verb = "returns" if place.side == "output" else "is given"
        raise ValueError(
            f"{label} {verb} {what}{dtype}; a gate needs a floating-point map (batch, channels, height, width)"
        )
    if len(sight.num_channels) > 1:
        widths = ", ".join(map(str, sight.num_channels))
        raise ValueError(f"{label} sees maps of different widths ({widths}); one gate cannot fit all")
    if sight.num_calls > sight.num_enclosing_calls:
        raise ValueError(
            f"{label} runs {sight.num_calls} times within one pass of the module around it; one gate would sit at all "
            "those places"
        )


def check_distinct(sights: Mapping[str, Sight]) -> None:
    """Refuse two places that are one: a module and the one around it that returns the same map.

    Raises:
        ValueError: Naming both.
    """
    for outer, sight in sights.items():
        for inner, other in sights.items():
            if inner.startswith(f"{outer}.") and sight.value is other.value:
                raise ValueError(f"{outer} returns the map of {inner}; two gates would act on the same map")


def refuse_doubling(model: nn.Module, present: Sequence[str], *, replace: bool) -> None:
    """Refuse places that a gate acts on already, unless it may be replaced and only one place stands for it.

    Raises:
        ValueError: Naming the first few gates and their classes.
    """
    for name in present:
        if present.count(name) > 1:
            raise ValueError(f"several of the places meet the same gate {name}; choose one of them")
    if present and not replace:
        gates = [f"{name} ({type(model.get_submodule(name)).__name__})" for name in present]
        shown = ", ".join(gates[:3]) + (f" and {len(gates) - 3} more" if len(gates) > 3 else "")
        raise ValueError(
            f"there is a gate already: {shown}. A second one would act on the same map; pass replace=True to put the "
            "new one in its place, or choose other places with where="
        )


def check_stages(stages: Sequence[int] | None, places: Sequence[Place], *, is_branches: bool) -> None:
    """Refuse stages that are no list, repeat, have no effect, or do not exist in the network.

    Raises:
        ValueError: With the stages that there are.
    """
    if stages is None:
        return
    if not is_branches:
        raise ValueError(f"stages ({stages!r}) has no effect unless where is 'branches'")
    if isinstance(stages, str) or not isinstance(stages, Sequence) or not stages:
        raise ValueError(f"stages ({stages!r}) must be a list of one or more stages, counted from 1")
    if len(set(stages)) != len(stages):
        raise ValueError(f"stages ({stages!r}) must name each stage once")
    there = sorted({place.stage for place in places if place.stage is not None})
    for stage in stages:
        if stage not in there:
            raise ValueError(f"stage {stage!r} has no place for a gate; stages with one: {', '.join(map(str, there))}")
