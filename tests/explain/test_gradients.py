import pytest
import torch
from torch import nn

from zoo.explain.gradients import gradient_of_logit, predict, with_gradients


def test_the_gradient_is_of_the_class_or_of_each_images_own():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    images = torch.rand(2, 1, 2, 2)
    with with_gradients(model):
        of_one = gradient_of_logit(model, images, 2)
        of_own = gradient_of_logit(model, images, torch.tensor([2, 0]))
    weight = model[1].weight.detach().view(3, 1, 2, 2)
    assert torch.equal(of_one, weight[[2, 2]])
    assert torch.equal(of_own, weight[[2, 0]])


def test_a_tensor_that_the_answer_does_not_use_has_no_gradient_but_zeros():
    unused = torch.ones(3, requires_grad=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with with_gradients(model):
        assert torch.equal(gradient_of_logit(model, torch.rand(1, 1, 2, 2), 0, lambda: unused), torch.zeros(3))


def test_predictions_come_in_parts_in_eval_mode_and_must_be_finite_logits():
    model = nn.Sequential(nn.Dropout(0.9), nn.Flatten(), nn.Linear(4, 3)).train()
    images = torch.rand(5, 1, 2, 2)
    assert torch.allclose(predict(model, images, batch_size=2), model[2](images.flatten(1)).detach())
    assert model.training
    with pytest.raises(ValueError, match=r"must return logits \(images, classes\), got \(5, 1, 2, 2\)"):
        predict(nn.Identity(), images)
    with pytest.raises(ValueError, match="logits are NaN or infinite"):
        predict(nn.Flatten(), images / 0)
