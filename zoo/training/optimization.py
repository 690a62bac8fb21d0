"""Optimizer, weight-decay groups, learning-rate schedule and the averaging of weights."""

import math
from collections.abc import Callable, Iterable

import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from zoo.config import OptimizationConfig
from zoo.insertion import attention_parameters


def split_by_decay(
    named_parameters: Iterable[tuple[str, nn.Parameter]],
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split the trainable ones of some parameters into those that decay and those that do not.

    Matrices and kernels decay: what has more than one axis and a name that ends in ``weight``. Norms, biases, factors,
    learned tokens and positions do not.
    """
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for name, parameter in named_parameters:
        if parameter.requires_grad:
            decays = parameter.ndim > 1 and name.endswith("weight")
            (decayed if decays else undecayed).append(parameter)
    return decayed, undecayed


def create_optimizer(model: nn.Module, config: OptimizationConfig) -> Optimizer:
    """Build the optimizer over the trainable parameters of a model, gates in groups of their own if their rate is.

    Raises:
        ValueError: The model has no trainable parameter, or ``attention_lr_multiplier`` is set and it has no gate.
    """
    assert config.peak_lr is not None
    assert config.weight_decay is not None
    gates = [] if config.attention_lr_multiplier == 1 else attention_parameters(model)
    of_gates = {id(parameter) for parameter in gates}
    groups = []
    for are_gates, lr in ((False, config.peak_lr), (True, config.peak_lr * config.attention_lr_multiplier)):
        parameters = [pair for pair in model.named_parameters() if (id(pair[1]) in of_gates) == are_gates]
        for group, weight_decay in zip(split_by_decay(parameters), (config.weight_decay, 0.0), strict=True):
            if group:
                groups.append({"params": group, "weight_decay": weight_decay, "lr": lr})
    if not groups:
        raise ValueError("the model has no trainable parameter: every requires_grad is False")
    if config.optimizer == "sgd":
        assert config.momentum is not None
        return SGD(groups, lr=config.peak_lr, momentum=config.momentum, nesterov=bool(config.nesterov))
    assert config.betas is not None
    return AdamW(groups, lr=config.peak_lr, betas=(config.betas[0], config.betas[1]))


def warmup_cosine(step: int, *, num_steps: int, warmup_steps: int, final_fraction: float = 0.0) -> float:
    """Return the learning rate of one optimizer step as a fraction of the peak.

    The first step of a warm-up is already above zero, ``1 / warmup_steps``; its last is the peak. After it comes
    half a cosine, whose end ``final_fraction`` would be reached one step after the last one.

    Args:
        step: Optimizer step, from 0.
        num_steps: Steps of the whole run.
        warmup_steps: Steps of the warm-up, 0 for none.
        final_fraction: Where the cosine ends.

    >>> [round(warmup_cosine(step, num_steps=6, warmup_steps=2), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, num_steps - warmup_steps))
    return final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * progress))


def ema_average(decay: float) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the update rule of an exponential moving average whose decay warms up.

    After ``t`` updates the decay is ``min(decay, (1 + t) / (10 + t))``, so that an average over few steps forgets
    the first weights. Counters (integer buffers) are copied, not averaged.
    """

    def update(averaged: torch.Tensor, current: torch.Tensor, num_averaged: torch.Tensor) -> torch.Tensor:
        if not torch.is_floating_point(averaged):
            return current
        warm = torch.clamp((1 + num_averaged) / (10 + num_averaged), max=decay).to(averaged.dtype)
        return torch.lerp(current, averaged, warm.to(averaged.device))

    return update


def create_weight_averaging(decay: float) -> WeightAveraging:
    """Build Lightning's callback that keeps a moving average of weights and buffers, and validates and saves it.

    Its counter is part of the checkpoint, so a resumed average goes on where it stood.
    """
    return WeightAveraging(use_buffers=True, avg_fn=ema_average(decay))
