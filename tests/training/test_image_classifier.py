"""The Lightning system: any module, short and odd batches, mixing, and figures that do not depend on batching."""

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from zoo.config import OptimizationConfig
from zoo.training.image_classifier import ImageClassifier, create_mixing
from zoo.training.run import quiet_lightning


def images_and_labels(count, num_classes=3):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, 4, 4, generator=generator), torch.arange(count) % num_classes


def net(num_classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, num_classes))


def fit(system, *, batch_size=4, count=9, **trainer):
    quiet_lightning()
    data = DataLoader(TensorDataset(*images_and_labels(count)), batch_size=batch_size)
    trainer = Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **{"max_epochs": 1, "num_sanity_val_steps": 0, **trainer},
    )  # fmt: skip
    trainer.fit(system, data, data)
    return trainer


def test_any_module_trains_and_the_figures_count_each_image_once():
    """Nine images in batches of 4, 4 and 1: the accuracy is that of all nine at once."""
    system = ImageClassifier(net(), num_classes=3)
    trainer = fit(system)
    images, labels = images_and_labels(9)
    with torch.inference_mode():
        logits = system.eval()(images)
    assert trainer.callback_metrics["val_top1"].item() == pytest.approx(
        (logits.argmax(1) == labels).float().mean().item()
    )
    assert trainer.callback_metrics["val_loss"].item() == pytest.approx(
        nn.functional.cross_entropy(logits, labels).item()
    )
    assert {"train_loss", "train_top1"} <= set(trainer.callback_metrics)


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.2, 0.0), (0.0, 1.0), (0.2, 1.0)])
def test_mixing_takes_odd_and_single_batches_and_reports_no_training_accuracy(mixup, cutmix):
    optimization = OptimizationConfig(mixup_alpha=mixup, cutmix_alpha=cutmix)
    trainer = fit(ImageClassifier(net(), num_classes=3, optimization=optimization))
    assert "train_top1" not in trainer.callback_metrics
    assert trainer.callback_metrics["train_loss"].isfinite()


@pytest.mark.parametrize("count", [1, 3, 4])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_mixed_label_rows_sum_to_one(count, num_classes):
    images, labels = images_and_labels(count, num_classes)
    mixed, soft = create_mixing(num_classes, 0.2, 1.0)(images, labels)
    assert mixed.shape == images.shape
    assert soft.sum(dim=1) == pytest.approx(torch.ones(count))


def test_schedule_counts_optimizer_steps_under_accumulation():
    system = ImageClassifier(net(), num_classes=3, optimization=OptimizationConfig(warmup_epochs=1.0))
    trainer = fit(system, accumulate_grad_batches=2, max_epochs=4)
    assert trainer.global_step == 4 * 2  # three batches an epoch: a step after the second and after the last
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == trainer.global_step
    assert trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0] == pytest.approx(0.0, abs=1e-9)


def test_warm_up_must_leave_steps():
    with pytest.raises(ValueError, match=r"must be below trainer\.max_epochs"):
        fit(ImageClassifier(net(), num_classes=3, optimization=OptimizationConfig(warmup_epochs=2.0)), max_epochs=2)


def test_one_epoch_runs_with_the_default_warm_up():
    assert fit(ImageClassifier(net(), num_classes=3), max_epochs=1).global_step == 3


def test_bad_class_numbers_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        ImageClassifier(net(1), num_classes=1)
    with pytest.raises(ValueError, match="2 class weights given for 3 classes"):
        ImageClassifier(net(), num_classes=3, class_weights=[1.0, 2.0])


def test_a_model_that_gives_nan_is_an_error_and_not_an_accuracy():
    broken = net()
    nn.init.constant_(broken[0].weight, float("nan"))
    system = ImageClassifier(broken, num_classes=3)
    with pytest.raises(FloatingPointError, match="validation loss is nan"):
        fit(system, limit_train_batches=1)


def test_class_weights_change_the_loss():
    images, labels = images_and_labels(6)
    plain = ImageClassifier(net(), num_classes=3)
    weighted = ImageClassifier(net(), num_classes=3, class_weights=[1.0, 5.0, 1.0])
    logits = plain(images)
    assert plain.loss(logits, labels).item() != pytest.approx(weighted.loss(logits, labels).item())


@pytest.mark.parametrize("channels_last", [True, False])
def test_memory_format_follows_the_option(channels_last):
    system = ImageClassifier(net(), num_classes=3, channels_last=channels_last)
    assert system.model[0].weight.is_contiguous(memory_format=torch.channels_last) == channels_last
