"""Put attention into a network, and take it out again."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from zoo.functional.validation import check_flag
from zoo.insertion.attachment import CHILD, Gate, attach, attach_in_slot, attach_instead, detach, inserted_gates, swap
from zoo.insertion.backbones import record_insertion, record_removal
from zoo.insertion.mechanism import Mechanism, count_gate_macs
from zoo.insertion.placement import BRANCHES, Where
from zoo.insertion.plan import PlannedGate, make_plan
from zoo.insertion.refusals import check_insertable
from zoo.insertion.report import InsertedGate, InsertionReport
from zoo.insertion.tracing import example_for, largest_difference, watch


def insert_attention(
    model: nn.Module,
    attention: str | Callable[..., nn.Module],
    *,
    where: Where = BRANCHES,
    stages: Sequence[int] | None = None,
    attention_args: Mapping[str, Any] | None = None,
    identity_start: bool = True,
    replace: bool = False,
    example_input: Any = None,
) -> InsertionReport:
    """Put a gate of its own at every place of a network, in place, without changing what the network returns.

    With ``identity_start`` the outputs in eval mode are those of the network before, bit for bit in float32 on the CPU.
    Every parameter and buffer keeps its name, and the gates are called ``attention``. So a state dict of the plain
    network loads with ``strict=False``, missing the gates' names alone, and :func:`remove_attention` takes all back.

    The widths are those of the maps seen in one forward pass, in eval mode and without gradients, which leaves modes,
    statistics and random generators as they were. The gates' own weights come from torch's generator, as any module's.

    Args:
        model: Any network, not yet compiled, scripted, quantised or wrapped for several devices.
        attention: A name out of :func:`zoo.list_attention`, or a class or function from a width to a module.
        where: ``"branches"`` for the places of :data:`zoo.insertion.FAMILIES` and of the zoo's networks; or names of
            modules whose outputs are gated, globs (``*`` within a part of the name, ``**`` over parts), compiled
            regular expressions, a list of these, or a function of name and module that says yes or no.
        stages: Stages, counted from 1, whose branches get a gate; ``None`` for all. A stage is a run of blocks at one
            resolution; in ResNets ``layer1`` to ``layer4``.
        attention_args: Options of the mechanism.
        identity_start: Let every gate start at exactly 1; a mechanism that cannot is refused.
        replace: Where a gate acts on the map already, put the new one in its place instead of refusing. In networks
            that publish a gate in some blocks only, these blocks are the places.
        example_input: What the model is called with in the traced pass, a tuple for several arguments; by default one
            random image of the size that the network is made for.

    Returns:
        Every place with width, added parameters and MACs; it prints as a table, and measures latency when asked.

    Raises:
        ValueError: Nothing is inserted then. Nothing matched, a gate is there already, a module is shared between
            places, never runs or returns no map, the mechanism or an option is not known, or the model is of a kind
            that gates cannot reach.

    >>> import torch, zoo
    >>> model = zoo.create_model("resnet20").eval()
    >>> images = torch.randn(2, 3, 32, 32)
    >>> before = model(images)
    >>> report = insert_attention(model, "cbam")
    >>> len(report.gates), report.added_parameters, torch.equal(model(images), before)
    (9, 3273, True)
    """
    check_flag("identity_start", identity_start)
    check_flag("replace", replace)
    check_insertable(model)
    mechanism = Mechanism(attention, attention_args, identity_start=identity_start)
    example = example_for(model, example_input)
    plan = make_plan(model, where, stages, example, replace=replace)
    modules = [mechanism.build_for(planned.sight.value) for planned in plan.gates]
    plain_parameters = sum(parameter.numel() for parameter in model.parameters())
    ours = {gate.name: gate for gate in inserted_gates(model)}
    with ExitStack() as undo:
        names = [_hang(model, *pair, ours, undo) for pair in zip(plan.gates, modules, strict=True)]
        after = _check_running(model, dict(zip(names, plan.gates, strict=True)), example)
        gates = tuple(map(_describe, names, plan.gates, modules))
        undo.pop_all()
    record_insertion(model, plan.slots, mechanism, [planned.place for planned in plan.gates])
    return InsertionReport(
        attention=mechanism.name,
        identity_start=identity_start,
        input_shapes=tuple(tuple(leaf.shape) for leaf in tree_leaves(example) if isinstance(leaf, Tensor)),
        gates=gates,
        plain_parameters=plain_parameters,
        max_difference=largest_difference(plan.output, after),
    )


def remove_attention(model: nn.Module) -> list[str]:
    """Take every inserted gate out of a network, in place: names, types and outputs are those from before.

    A gate that was replaced is put back. Gates that a network of the zoo was built with are part of it, and stay.

    Returns:
        The names of the gates that were removed.

    Raises:
        ValueError: There is no inserted gate.

    >>> import zoo
    >>> model = zoo.create_model("resnet20")
    >>> names = list(model.state_dict())
    >>> report = insert_attention(model, "se", stages=[3])
    >>> remove_attention(model), list(model.state_dict()) == names
    (['layer3.0.attention', 'layer3.1.attention', 'layer3.2.attention'], True)
    """
    gates = list(inserted_gates(model))
    if not gates:
        raise ValueError("the model has no inserted attention to remove")
    for gate in gates:
        detach(model, gate)
    record_removal(model)
    return [gate.name for gate in gates]


def _hang(model: nn.Module, planned: PlannedGate, gate: nn.Module, ours: Mapping[str, Gate], undo: ExitStack) -> str:
    """Hang a gate into the model, tell ``undo`` how to take it out again, and return its name."""
    place, present = planned.place, planned.present
    around, _, child = (present or place.target).rpartition(".")
    parent = model.get_submodule(around)
    gate.train(parent.training)
    old = ours.get(present or "")
    if old is not None:
        swap(old, gate)
        undo.callback(swap, old, old.module)
        return old.name
    if place.is_slot:
        attach_in_slot(parent, gate, place.step_before)
        name = place.target
    elif present is not None:
        attach_instead(parent, child, gate)
        name = f"{present}.{CHILD}"
    else:
        attach(model.get_submodule(place.target), gate, place.side)
        name = f"{place.target}.{CHILD}"
    (hung,) = (found for found in inserted_gates(model) if found.name == name)
    undo.callback(detach, model, hung)
    return name


def _check_running(model: nn.Module, gates: Mapping[str, PlannedGate], example: tuple[Any, ...]) -> Any:
    """Run the model with its gates and return what it returns.

    Raises:
        ValueError: A gate did not run as often as the module it hangs on.
    """
    sights, output = watch(model, dict.fromkeys(gates, "output"), example)
    for name, planned in gates.items():
        if sights[name].num_calls != planned.sight.num_calls:
            raise ValueError(
                f"the gate {name} ran {sights[name].num_calls} times and not {planned.sight.num_calls}: the model does "
                f"not call {planned.place.target} as a module"
            )
    return output


def _describe(name: str, planned: PlannedGate, gate: nn.Module) -> InsertedGate:
    _, channels, height, width = planned.sight.value.shape
    return InsertedGate(
        name=name,
        place=f"{planned.place.side} of {planned.place.target}",
        stage=planned.place.stage,
        channels=channels,
        height=height,
        width=width,
        parameters=sum(parameter.numel() for parameter in gate.parameters()),
        macs=count_gate_macs(gate, channels, height, width),
        replaced=planned.present_class,
    )
