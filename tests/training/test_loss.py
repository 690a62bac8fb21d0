"""Cross entropy: integer and soft targets agree, and ignored images change nothing."""

import pytest
import torch
from torch.nn import functional

from zoo.training.loss import MixedTargetCrossEntropy

LOGITS = torch.tensor([[2.0, 0, 0], [0, 2.0, 0]])
TARGETS = torch.tensor([0, 1])
WEIGHTS = torch.tensor([1.0, 3.0, 1.0])


def test_weighted_loss_is_the_same_for_integer_and_one_hot_targets():
    loss = MixedTargetCrossEntropy(WEIGHTS)
    assert loss(LOGITS, TARGETS).item() == pytest.approx(0.23954, abs=1e-5)
    assert loss(LOGITS, functional.one_hot(TARGETS, 3).float()).item() == pytest.approx(0.23954, abs=1e-5)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_integer_targets_give_torchs_cross_entropy(weights, smoothing):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 3, generator=generator, dtype=torch.float32)
    targets = torch.tensor([0, 1, 2, -100, 1, 0, -100])
    expected = functional.cross_entropy(logits, targets, weight=weights, label_smoothing=smoothing)
    assert MixedTargetCrossEntropy(weights, smoothing)(logits, targets).item() == pytest.approx(
        expected.item(), rel=1e-5
    )


def test_ignored_images_change_nothing():
    loss = MixedTargetCrossEntropy(WEIGHTS, label_smoothing=0.2)
    longer = torch.cat([LOGITS, torch.tensor([[9.0, -9, 3]])])
    assert loss(longer, torch.tensor([0, 1, -100])).item() == pytest.approx(loss(LOGITS, TARGETS).item(), rel=1e-6)


def test_a_batch_of_ignored_images_is_zero_and_not_nan():
    logits = LOGITS.clone().requires_grad_()
    loss = MixedTargetCrossEntropy(label_smoothing=0.1)(logits, torch.tensor([-100, -100]))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_half_precision_logits_are_computed_in_float32():
    loss = MixedTargetCrossEntropy()(torch.tensor([[1000.0, -1000.0]], dtype=torch.float16), torch.tensor([1]))
    assert loss.item() == pytest.approx(2000.0)


def test_mixed_targets_weigh_both_parts():
    mixed = torch.tensor([[0.7, 0.3, 0.0]])
    negative_log_p = -LOGITS[:1].log_softmax(dim=1)[0]
    expected = (0.7 * negative_log_p[0] + 0.3 * 3 * negative_log_p[1]) / (0.7 + 0.3 * 3)
    assert MixedTargetCrossEntropy(WEIGHTS)(LOGITS[:1], mixed).item() == pytest.approx(expected.item(), rel=1e-6)
