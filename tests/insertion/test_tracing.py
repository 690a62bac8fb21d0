"""The pass that reads the widths: what it is fed, and that it leaves no trace."""

import pytest
import torch
from torch import nn

import zoo
from zoo.insertion.tracing import example_for, is_gate, largest_difference, undisturbed, watch


def test_the_image_has_the_size_and_channels_the_network_is_made_for(resnet):
    timm = pytest.importorskip("timm")
    assert example_for(resnet)[0].shape == (1, 3, 224, 224)
    assert example_for(zoo.create_model("resnet20", in_channels=1))[0].shape == (1, 1, 32, 32)
    assert example_for(zoo.create_model("mobilenet_v2"))[0].shape == (1, 3, 224, 224)
    assert example_for(timm.create_model("test_resnet"))[0].shape == (1, 3, 160, 160)
    assert example_for(resnet.double())[0].dtype == torch.float64


def test_an_example_is_one_argument_or_a_tuple_of_them(resnet):
    image = torch.zeros(1, 3, 8, 8)
    assert example_for(resnet, image)[0] is image
    assert example_for(resnet, (image, 2.0)) == (image, 2.0)
    assert example_for(resnet, [image]) == ([image],)


def test_an_example_draws_nothing_from_the_global_generator(resnet):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, second = example_for(resnet)[0], example_for(resnet)[0]
    assert torch.equal(first, second)
    assert torch.equal(torch.rand(1), expected)


class Counts(nn.Module):
    """A module that changes a buffer and draws random numbers whenever it runs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, features):
        self.count += 1
        return features + 0 * torch.rand(1)


def test_modes_buffers_and_random_numbers_come_back_even_after_an_error():
    model = nn.Sequential(Counts(), nn.BatchNorm2d(3), nn.Dropout())
    model[2].eval()
    buffer = model[0].count
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    watch(model, {"1": "output"}, (torch.randn(2, 3, 4, 4, generator=torch.Generator()),))
    with pytest.raises(ValueError, match="pass example_input"):
        watch(model, {"1": "output"}, (torch.zeros(2, 5, 4, 4),))
    assert torch.equal(torch.rand(1), expected)
    assert model[0].count is buffer
    assert buffer == 0
    assert model[1].num_batches_tracked == 0
    assert [module.training for module in model] == [True, True, False]
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_within_the_pass_nothing_trains():
    model = nn.Sequential(nn.BatchNorm2d(3))
    with undisturbed(model):
        assert not model[0].training
        assert not torch.is_grad_enabled()
    assert model[0].training


def test_gates_are_known_by_class_or_by_name_and_activations_are_none():
    assert is_gate(zoo.create_attention("eca", 4))
    assert is_gate(zoo.create_model("mobilenet_v3_small").features[1].block.attention)
    assert not is_gate(nn.SELU())
    assert not is_gate(nn.Sequential(nn.Conv2d(3, 3, 1)))


def test_differences_of_nested_outputs():
    first = {"out": torch.tensor([1.0, 2.0]), "aux": [torch.zeros(2)]}
    second = {"out": torch.tensor([1.0, 2.5]), "aux": [torch.zeros(2)]}
    assert largest_difference(first, second) == 0.5
    assert largest_difference(first, first) == 0.0
    assert largest_difference(first, {"out": torch.zeros(2), "aux": []}) is None
    assert largest_difference({"out": torch.zeros(1)}, {"out": torch.zeros(2)}) is None
