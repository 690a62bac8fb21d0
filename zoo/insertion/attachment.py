"""How a gate hangs in a network without changing a name, and how it comes off again.

A gate is always a child called ``attention``. A ``Sequential`` runs it as its last step; any other module runs it in a
forward hook that is a plain function of this file, so that copying, pickling, compiling and exporting the network all
find it. A network of the zoo gets it in the slot where ``zoo.create_model`` would have put it, under the same name.
No module is wrapped or given another class, so names, types and state dict of the plain network stay.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from zoo.insertion.families import Side
from zoo.models.backbone import Backbone

Way = Literal["step", "output", "input", "slot", "instead"]
"""A step of a Sequential; after or before a module's forward pass; in a slot of the zoo; instead of another gate."""

CHILD = "attention"


@dataclass(frozen=True)
class Mark:
    """What a gate carries as ``inserted``: how it hangs, and the module that stood in its place before.

    The module before is out of sight of ``state_dict``, ``parameters`` and ``to``.
    """

    way: Way
    before: nn.Module | None = None


class Gate(NamedTuple):
    """An inserted gate: its qualified name, itself, the module it is a child of and its mark."""

    name: str
    module: nn.Module
    parent: nn.Module
    mark: Mark


def gate_output(module: Any, _inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    """Gate what a module returns; a forward hook."""
    return module.attention(output)


def gate_input(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Gate what a module is given; a forward pre-hook."""
    return module.attention(inputs[0]), *inputs[1:]


def inserted_gates(model: nn.Module) -> Iterator[Gate]:
    """Return every inserted gate in the order of the modules."""
    for parent_name, parent in model.named_modules():
        for child_name, child in parent.named_children():
            found = vars(child).get("inserted")
            if isinstance(found, Mark):
                yield Gate(f"{parent_name}.{child_name}".lstrip("."), child, parent, found)


def mark(gate: nn.Module, how: Mark) -> None:
    """Write on a gate how it hangs."""
    vars(gate)["inserted"] = how


def attach(target: nn.Module, gate: nn.Module, side: Side) -> None:
    """Let ``gate`` act on what ``target`` returns or is given."""
    way: Way = "step" if side == "output" and runs_as_sequence(target) else side
    if way == "output":
        target.register_forward_hook(gate_output)
    elif way == "input":
        target.register_forward_pre_hook(gate_input)
    mark(gate, Mark(way))
    target.add_module(CHILD, gate)


def attach_instead(parent: nn.Module, child_name: str, gate: nn.Module) -> None:
    """Put ``gate``, under the name of ``child_name`` and ``attention``, instead of a child that is a gate itself."""
    before = parent.get_submodule(child_name)
    holder = nn.Sequential().train(before.training)
    mark(gate, Mark("instead", before))
    holder.add_module(CHILD, gate)
    setattr(parent, child_name, holder)


def attach_in_slot(parent: nn.Module, gate: nn.Module, step_before: str | None) -> None:
    """Put ``gate`` in a slot of a network of the zoo, after a step of a sequence or in the attribute of a block."""
    mark(gate, Mark("slot", getattr(parent, CHILD, None)))
    fill_slot(parent, gate, step_before)


def fill_slot(parent: nn.Module, module: nn.Module, step_before: str | None) -> None:
    """Put a module in a slot that may be empty."""
    is_new_step = step_before is not None and CHILD not in parent._modules
    setattr(parent, CHILD, module)
    if is_new_step:
        steps = list(parent._modules)
        for name in steps[steps.index(str(step_before)) + 1 : -1]:  # all behind the gate's place move behind the gate
            parent._modules[name] = parent._modules.pop(name)


def empty_slot(parent: nn.Module, before: nn.Module | None) -> None:
    """Take a module out of a slot and put back what was there."""
    if before is not None:
        setattr(parent, CHILD, before)
        return
    delattr(parent, CHILD)
    if not isinstance(parent, nn.Sequential):  # a block asks whether its slot is None, a sequence has none
        setattr(parent, CHILD, None)


def swap(old: Gate, new: nn.Module) -> None:
    """Put a gate where an inserted one hangs."""
    mark(new, old.mark)
    old.parent._modules[CHILD] = new


def detach(model: nn.Module, gate: Gate) -> None:
    """Take an inserted gate out, and put what it replaced back on the device and in the dtype of the gate."""
    before = gate.mark.before
    if before is not None:
        tensor = next((p for p in (*gate.module.parameters(), *gate.module.buffers()) if p.is_floating_point()), None)
        if tensor is not None:
            before.to(tensor.device, tensor.dtype)
        before.train(gate.module.training)
    if gate.mark.way == "slot":
        empty_slot(gate.parent, before)
    elif gate.mark.way == "instead":
        holder_name = gate.name.removesuffix(f".{CHILD}")
        parent_name, _, child_name = holder_name.rpartition(".")
        setattr(model.get_submodule(parent_name), child_name, before)
    else:
        for hooks in (gate.parent._forward_hooks, gate.parent._forward_pre_hooks):
            for key in [key for key, hook in hooks.items() if hook in (gate_output, gate_input)]:
                del hooks[key]
        delattr(gate.parent, CHILD)
    del vars(gate.module)["inserted"]


def runs_as_sequence(module: nn.Module) -> bool:
    """Return whether a module runs all its children one after the other."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def is_running(gate: Gate) -> bool:
    """Return whether the network still applies a gate: a module that was converted loses its hooks."""
    if gate.mark.way == "output":
        return gate_output in gate.parent._forward_hooks.values()
    if gate.mark.way == "input":
        return gate_input in gate.parent._forward_pre_hooks.values()
    return True


def find_gates(model: nn.Module) -> list[nn.Module]:
    """Return all gates: those inserted, and those a network of the zoo was built with; each once.

    Raises:
        ValueError: An inserted gate no longer runs, since its module was replaced after the insertion.
    """
    gates: dict[int, nn.Module] = {}
    for gate in inserted_gates(model):
        if not is_running(gate):
            raise ValueError(
                f"the gate {gate.name} does not run: its module was replaced after the insertion, as a conversion of "
                "norms does. Convert first, then insert"
            )
        gates[id(gate.module)] = gate.module
    for module in model.modules():
        if isinstance(module, Backbone):
            built_in = [module.get_submodule(place.name) for place in module.attention_places()]
            gates |= {id(gate): gate for gate in built_in}
    return list(gates.values())


def attention_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of all gates: those inserted, and those a network of the zoo was built with.

    Args:
        model: A network with gates, or anything that contains one.

    Returns:
        Each parameter once, in the order of the network: for a learning rate of their own, or to train them first.

    Raises:
        ValueError: There is no gate, or one that no longer runs, since its module was replaced after the insertion.

    >>> import zoo
    >>> model = zoo.create_model("resnet20", attention="eca")
    >>> len(attention_parameters(model))
    9
    """
    gates = find_gates(model)
    if not gates:
        raise ValueError("the model has no gate: neither an inserted one nor one of the zoo it was built with")
    wanted = {id(parameter) for gate in gates for parameter in gate.parameters()}
    return [parameter for parameter in model.parameters() if id(parameter) in wanted]
