"""Does the answer need the attention? It is evened out, or shuffled, and the network asked again."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zoo.explain.gates import find_gate_modules, read_factors
from zoo.explain.gradients import predict
from zoo.explain.token_weights import find_token_attention
from zoo.insertion.tracing import is_feature_map

How = Literal["uniform", "permuted"]
NUM_PERMUTATIONS = 4


@dataclass(frozen=True)
class Replacement:
    """What the network answers with its attention replaced.

    Args:
        how: ``uniform``, every weight the mean of those it stands among, or ``permuted``, the weights in another order.
        before: Probability of the explained class with the attention as it is.
        after: The same with the attention replaced; mean over permutations.
        moved: Probability that went from some classes to others, 0 to 1: half the sum of all changes; mean likewise.
        changes_answer: Share of the trials in which another class became the most likely.
    """

    how: How
    before: float
    after: float
    moved: float
    changes_answer: float


def measure_replacements(model: nn.Module, images: Tensor, class_index: int, *, seed: int) -> tuple[Replacement, ...]:
    """Return what changes with uniform and with permuted attention; nothing for a network without any.

    Args:
        model: Maps images to logits.
        images: One image, (1, channels, height, width).
        class_index: The explained class.
        seed: Of the permutations.
    """
    if not find_token_attention(model) and not find_gate_modules(model):
        return ()
    before = predict(model, images)[0].softmax(0)
    found = []
    ways: tuple[tuple[How, int], ...] = (("uniform", 1), ("permuted", NUM_PERMUTATIONS))
    for how, trials in ways:
        generator = torch.Generator().manual_seed(seed)
        answers = []
        for _ in range(trials):
            with replaced_attention(model, how, generator):
                answers.append(predict(model, images)[0].softmax(0))
        after = torch.stack(answers)
        found.append(
            Replacement(
                how=how,
                before=float(before[class_index]),
                after=float(after[:, class_index].mean()),
                moved=float((after - before).abs().sum(1).mean() / 2),
                changes_answer=float((after.argmax(1) != before.argmax()).double().mean()),
            )
        )
    return tuple(found)


@contextmanager
def replaced_attention(model: nn.Module, how: How, generator: torch.Generator) -> Iterator[None]:
    """Replace the attention of a network inside the ``with``.

    A gate's factors become their mean, or change places among the channels or positions. The weights of each token
    become even over the tokens that it looks at, or change places among them. Gates that do more than multiply stay.

    Args:
        model: Any network.
        how: ``uniform`` or ``permuted``.
        generator: Draws the permutations.
    """

    def gate_hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if not (is_feature_map(inputs[0]) and is_feature_map(output)):
            return output
        factors = read_factors(module, inputs[0], output)
        product = inputs[0]
        for kind, factor in factors or ():
            axes = (1,) if kind == "channel" else (2, 3)
            product = product * _replace_factor(factor, axes, how, generator)
        return output if factors is None else product

    def token_hook(module: Any, inputs: tuple[Any, ...], options: dict[str, Any], _: Any) -> Tensor:
        weights = module.attention_weights(*inputs, **options)
        token_mask = options.get("token_mask")
        value = module.project(inputs[0], token_mask)[2]
        replaced = _replace_weights(weights, how, generator).to(value.dtype)
        output: Tensor = module.join(replaced @ value, token_mask)
        return output

    with ExitStack() as stack:
        for gate, _ in find_gate_modules(model).values():
            stack.callback(gate.register_forward_hook(gate_hook).remove)
        for module in find_token_attention(model).values():
            stack.callback(module.register_forward_hook(token_hook, with_kwargs=True).remove)
        yield


def _replace_factor(factor: Tensor, axes: tuple[int, ...], how: How, generator: torch.Generator) -> Tensor:
    if how == "uniform":
        return factor.mean(axes, keepdim=True)
    flat = factor.flatten(1)
    order = torch.randperm(flat.shape[1], generator=generator).to(factor.device)
    return flat[:, order].view(factor.shape)


def _replace_weights(weights: Tensor, how: How, generator: torch.Generator) -> Tensor:
    """Spread each row evenly over its entries above 0, or shuffle it among them."""
    visible = weights > 0
    if how == "uniform":
        return visible / visible.sum(-1, keepdim=True).clamp_min(1)
    lot = torch.rand(weights.shape, generator=generator).to(weights.device)
    shuffled = lot.masked_fill(~visible, 2).argsort(-1)
    places = (~visible).to(torch.uint8).argsort(dim=-1, stable=True)
    return torch.zeros_like(weights).scatter(-1, places, weights.gather(-1, shuffled))
