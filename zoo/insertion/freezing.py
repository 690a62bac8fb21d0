"""Train the gates alone first: a backbone whose weights and statistics stand still, whatever ``train()`` says."""

from collections.abc import Sequence
from functools import partial

from torch import nn

from zoo.insertion.attachment import find_gates
from zoo.insertion.placement import enclosing, select_modules


def freeze_backbone(model: nn.Module, *, trainable: str | Sequence[str] = ()) -> list[str]:
    """Freeze everything but the gates: no gradients, and every module in eval mode for good.

    Frozen norms keep their running statistics and frozen dropout stays off, since ``train()`` no longer reaches them;
    the gates, and whatever is named in ``trainable``, follow it. :func:`unfreeze_backbone` takes it all back. Freeze
    before a network is wrapped for distributed training. In a detector freeze the backbone (``detector.backbone``),
    since the detector's own parts must know that they train.

    Args:
        model: A network with inserted or built-in gates.
        trainable: Names or globs of modules that go on training, such as ``"fc"``: the new head of a new task.

    Returns:
        The names of the parameters that were frozen.

    Raises:
        ValueError: There is no gate, ``trainable`` matches nothing, or the model is frozen already.

    >>> import zoo
    >>> model = zoo.create_model("resnet20", attention="se")
    >>> frozen = freeze_backbone(model, trainable="fc")
    >>> frozen[:2], model.train().layer1[0].bn1.training, model.layer1[0].attention.training
    (['conv1.weight', 'bn1.weight'], False, True)
    """
    if any(_is_held(module) for module in model.modules()):
        raise ValueError("the model is frozen already; call unfreeze_backbone(model) first")
    gates = find_gates(model)
    if not gates:
        raise ValueError("the model has no gate that could train while the rest is frozen: insert attention first")
    names = select_modules(model, trainable) if trainable else []
    free = [module for gate in gates for module in gate.modules()]
    free += [module for name in names for module in model.get_submodule(name).modules()]
    follows = {id(module) for module in free}
    follows |= {id(model.get_submodule(around)) for name in names for around in enclosing(name)}
    learns = {id(parameter) for module in free for parameter in module.parameters()}
    frozen = {}
    for name, parameter in model.named_parameters():
        if id(parameter) not in learns and parameter.requires_grad:
            frozen[name] = parameter.requires_grad_(False)
    for module_name, module in list(model.named_modules()):
        own = [name for name, _ in module.named_parameters(recurse=False)]
        thaws = tuple(name for name in own if f"{module_name}.{name}".lstrip(".") in frozen)
        if thaws:
            vars(module)["thaws"] = thaws
        if id(module) not in follows:
            module.training = False
            vars(module)["train"] = partial(keep_in_eval, module)
    return list(frozen)


def unfreeze_backbone(model: nn.Module) -> list[str]:
    """Let everything that :func:`freeze_backbone` froze train again, in the mode that the gates are in.

    Returns:
        The names of the parameters that train again; those that were frozen before stay so.

    Raises:
        ValueError: Nothing is frozen.
    """
    modules = dict(model.named_modules())
    if not any(_is_held(module) for module in modules.values()):
        raise ValueError("nothing is frozen: freeze_backbone(model) was not called")
    is_training = any(module.training for module in modules.values())
    thawed = []
    for module_name, module in modules.items():
        for name in module.__dict__.pop("thaws", ()):
            getattr(module, name).requires_grad_(True)
            thawed.append(f"{module_name}.{name}".lstrip("."))
        if _is_held(module):
            del module.__dict__["train"]
            module.training = is_training
    return thawed


def keep_in_eval(module: nn.Module, mode: bool = True) -> nn.Module:
    """Do what ``train`` does, except to the module itself: its children decide for themselves."""
    for child in module.children():
        child.train(mode)
    return module


def _is_held(module: nn.Module) -> bool:
    held = vars(module).get("train")
    return isinstance(held, partial) and held.func is keep_in_eval
