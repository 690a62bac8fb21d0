"""Fine-tuning in two parts: the gates alone, then everything."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from zoo.insertion import attention_parameters


class TrainGatesFirst(Callback):
    """Trains the gates of ``pl_module.model`` alone for the first epochs; everything else stands still to the bit.

    The other weights keep ``requires_grad`` and lose their gradients before each step, so that a distributed or a
    compiled model need not be built anew when they join in: neither momentum nor weight decay moves them. Their batch
    norms normalise by the statistics they have. The learning-rate schedule runs over the whole run.

    Args:
        num_epochs: Epochs in which the gates train alone, at least 1.
    """

    def __init__(self, num_epochs: int) -> None:
        self.num_epochs = num_epochs
        self._others: list[nn.Parameter] = []
        self._norms: list[nn.Module] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find what is to stand still.

        Raises:
            ValueError: The model has no gate, or no epoch would be left for everything.
        """
        if trainer.max_epochs is not None and 0 < trainer.max_epochs <= self.num_epochs:
            raise ValueError(
                f"optimization.gates_first_epochs ({self.num_epochs}) must be below "
                f"trainer.max_epochs ({trainer.max_epochs})"
            )
        assert isinstance(pl_module.model, nn.Module)
        gates = {id(parameter) for parameter in attention_parameters(pl_module.model)}
        self._others = [parameter for parameter in pl_module.model.parameters() if id(parameter) not in gates]
        self._norms = [
            module
            for module in pl_module.model.modules()
            if isinstance(module, _BatchNorm)
            and not any(id(parameter) in gates for parameter in module.parameters(recurse=False))
        ]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Hold the batch norms, or let them go."""
        del pl_module, batch, batch_idx
        for norm in self._norms:
            norm.training = trainer.current_epoch >= self.num_epochs  # not its children: a gate may be one of them

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Take their gradients from all but the gates."""
        del pl_module, optimizer
        if trainer.current_epoch < self.num_epochs:
            for parameter in self._others:
                parameter.grad = None
