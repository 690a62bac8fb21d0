"""How the weights of a run are trained: optimizer, schedule, smoothing, mixing, averaging."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class OptimizationConfig:
    """How the weights are trained.

    The learning rate rises linearly over ``warmup_epochs`` and then follows half a cosine down to
    ``final_lr_fraction * peak_lr``, both counted in optimizer steps.

    Args:
        optimizer: ``sgd`` (momentum) or ``adamw``.
        peak_lr: Learning rate at the end of the warm-up; by default 0.1 for sgd and 0.001 for adamw.
        momentum: Of sgd; by default 0.9.
        nesterov: Of sgd; by default true.
        betas: Of adamw; by default [0.9, 0.999].
        weight_decay: Never applied to norms, biases, learned tokens and positions; by default 0.0005 for sgd and 0.05
            for adamw.
        warmup_epochs: Length of the warm-up, fractions allowed; by default 1, or a fifth of a run under 5 epochs.
        final_lr_fraction: Learning rate of the last step as a fraction of the peak, 0 to 1.
        label_smoothing: Share of the target spread evenly over all classes, 0 to below 1.
        mixup_alpha: Parameter of the Beta distribution of mixup; 0 switches it off.
        cutmix_alpha: Parameter of the Beta distribution of cutmix; 0 switches it off. With both, each batch draws one.
        ema_decay: Decay of an exponential moving average of the weights, which is then what is validated, tested and
            saved; after t updates it is min(ema_decay, (1 + t) / (10 + t)). None: the raw weights.
        attention_lr_multiplier: Learning rate of the gates as a multiple of everyone's, above 0; for gates put into a
            trained network.
        gates_first_epochs: First epochs in which the gates alone are trained: all other weights, and the statistics
            of their batch norms, stand still.
        class_weights: One weight per class in class order, or ``balanced`` for inverse training frequencies.
    """

    optimizer: Literal["sgd", "adamw"] = "sgd"
    peak_lr: float | None = None
    momentum: float | None = None
    nesterov: bool | None = None
    betas: list[float] | None = None
    weight_decay: float | None = None
    warmup_epochs: float | None = None
    final_lr_fraction: float = 0.0
    label_smoothing: float = 0.0
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    ema_decay: float | None = None
    attention_lr_multiplier: float = 1.0
    gates_first_epochs: int = 0
    class_weights: Literal["balanced"] | list[float] | None = None

    def __post_init__(self) -> None:
        """Fill what depends on the optimizer and refuse what contradicts it."""
        if self.optimizer == "sgd":
            defaults: dict[str, Any] = {"peak_lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
            foreign = ["betas"]
        else:
            defaults = {"peak_lr": 1e-3, "betas": [0.9, 0.999], "weight_decay": 0.05}
            foreign = ["momentum", "nesterov"]
        for name in foreign:
            if getattr(self, name) is not None:
                raise ValueError(f"optimization.{name} has no effect on optimizer {self.optimizer!r}; leave it out")
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        assert self.peak_lr is not None
        assert self.weight_decay is not None
        _check("peak_lr", self.peak_lr, self.peak_lr > 0, "above 0")
        _check("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more")
        if self.warmup_epochs is not None:
            _check("warmup_epochs", self.warmup_epochs, self.warmup_epochs >= 0, "0 or more")
        _check("final_lr_fraction", self.final_lr_fraction, 0 <= self.final_lr_fraction <= 1, "from 0 to 1")
        _check("label_smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "from 0 to below 1")
        _check("mixup_alpha", self.mixup_alpha, self.mixup_alpha >= 0, "0 or more")
        _check("cutmix_alpha", self.cutmix_alpha, self.cutmix_alpha >= 0, "0 or more")
        if self.momentum is not None:
            _check("momentum", self.momentum, 0 <= self.momentum < 1, "from 0 to below 1")
            if self.nesterov and self.momentum == 0:
                raise ValueError("optimization.nesterov needs a momentum above 0; set nesterov to false")
        if self.betas is not None:
            inside = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
            _check("betas", self.betas, inside, "two numbers from 0 to below 1")
        if self.ema_decay is not None:
            _check("ema_decay", self.ema_decay, 0 < self.ema_decay < 1, "between 0 and 1, or null for none")
        _check("attention_lr_multiplier", self.attention_lr_multiplier, self.attention_lr_multiplier > 0, "above 0")
        _check("gates_first_epochs", self.gates_first_epochs, self.gates_first_epochs >= 0, "0 or more")
        if isinstance(self.class_weights, list):
            usable = all(weight >= 0 for weight in self.class_weights) and sum(self.class_weights) > 0
            _check("class_weights", self.class_weights, usable, "weights of 0 or more, not all 0")


def _check(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"optimization.{name} is {value}; it must be {expected}")
