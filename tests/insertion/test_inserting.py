"""The promise: the same outputs with gates, the same network without them, and nothing half done after an error."""

import copy

import pytest
import torch
from torch import nn

import zoo
from zoo.attention.feature_map.squeeze_excitation import SqueezeExcitation

EVERY_ATTENTION = zoo.list_attention()


def snapshot(model):
    modules = {name: (type(module), module.training) for name, module in model.named_modules()}
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return modules, hooks, {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(before, after):
    assert before[0] == after[0]
    assert before[1] == after[1]
    assert list(before[2]) == list(after[2])
    assert all(torch.equal(value, after[2][name]) for name, value in before[2].items())


@pytest.mark.parametrize("attention", EVERY_ATTENTION)
def test_outputs_are_equal_bit_for_bit_before_and_after(net, images, attention):
    expected = net(images)
    report = zoo.insert_attention(net, attention)
    assert torch.equal(net(images), expected)
    assert report.max_difference == 0.0
    assert len(report.gates) >= 2


@pytest.mark.parametrize("attention", EVERY_ATTENTION)
def test_a_fresh_start_changes_the_outputs_so_equality_is_no_accident(net, images, attention):
    expected = net(images)
    report = zoo.insert_attention(net, attention, identity_start=False)
    moved = (net(images) - expected).norm() / expected.norm()
    assert moved > 1e-3
    assert report.max_difference > 0


def test_gates_learn_and_every_one_has_an_effect(net, images):
    report = zoo.insert_attention(net, "cbam")
    plain = net(images).detach()
    for gate in report.gates:
        parameters = list(net.get_submodule(gate.name).parameters())
        before = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(0.5)
        assert not torch.equal(net(images), plain), gate.name
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)
    net.train()(images).square().sum().backward()
    assert all(parameter.grad is not None for parameter in zoo.attention_parameters(net))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_outputs_stay_equal_in_either_memory_layout_and_with_in_place_activations(net, images, layout):
    for module in net.modules():
        if hasattr(module, "inplace"):
            module.inplace = True
    net, images = net.to(memory_format=layout), images.contiguous(memory_format=layout)
    expected = net(images)
    zoo.insert_attention(net, "cbam")
    assert torch.equal(net(images), expected)
    net(images).sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_outputs_stay_equal_in_other_precisions(net, images, dtype):
    net, images = net.to(dtype), images.to(dtype)
    expected = net(images)
    zoo.insert_attention(net, "cbam")
    assert all(parameter.dtype == dtype for parameter in zoo.attention_parameters(net))
    torch.testing.assert_close(net(images), expected, rtol=0, atol=1e-6)


def test_training_mode_starts_at_the_identity_too(resnet, images):
    plain = copy.deepcopy(resnet).train()
    zoo.insert_attention(resnet, "cbam")
    assert torch.equal(resnet.train()(images), plain(images))


def test_inserted_state_dict_is_the_plain_one_and_the_gates(net):
    plain = net.state_dict()
    report = zoo.insert_attention(net, "cbam")
    of_gates = [name for name in net.state_dict() if any(name.startswith(f"{gate.name}.") for gate in report.gates)]
    assert [name for name in net.state_dict() if name not in of_gates] == list(plain)
    loaded = net.load_state_dict(plain, strict=False)
    # Torch's norms count batches from zero when a state dict does not say.
    assert loaded.missing_keys == [name for name in of_gates if not name.endswith("num_batches_tracked")]
    assert loaded.unexpected_keys == []
    assert {name for name, _ in net.named_parameters()} >= {name for name in plain if name.endswith(("weight", "bias"))}


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_tracing_touches_neither_modes_nor_statistics_nor_random_numbers(resnet, mode):
    resnet.train(mode)
    resnet.layer2[0].bn1.train(not mode)
    before = snapshot(resnet)
    torch.manual_seed(3)
    gates = [SqueezeExcitation(width, identity_start=True) for width in (8, 16, 24, 32)]
    expected = torch.rand(1)
    torch.manual_seed(3)
    zoo.insert_attention(resnet, "se")
    assert torch.equal(torch.rand(1), expected)  # only the gates' own weights were drawn
    assert torch.equal(resnet.layer4[0].bn2.attention.mlp[0].weight, gates[3].mlp[0].weight)
    after = snapshot(resnet)
    assert after[0].items() >= before[0].items()
    assert all(torch.equal(value, after[2][name]) for name, value in before[2].items())
    assert resnet.layer2[0].bn2.attention.training is mode
    assert all(parameter.grad is None for parameter in resnet.parameters())


def test_removal_gives_the_plain_network_back(net, images):
    before, expected = snapshot(net), net(images)
    report = zoo.insert_attention(net, "cbam")
    with torch.no_grad():
        for parameter in zoo.attention_parameters(net):
            parameter.add_(1.0)
    assert sorted(zoo.remove_attention(net)) == sorted(gate.name for gate in report.gates)
    assert_same(before, snapshot(net))
    assert torch.equal(net(images), expected)
    with pytest.raises(ValueError, match="no inserted attention to remove"):
        zoo.remove_attention(net)


def test_a_second_gate_is_refused_and_replaced_when_asked(net, images):
    plain, expected = snapshot(net), net(images)
    zoo.insert_attention(net, "se")
    before = snapshot(net)
    with pytest.raises(ValueError, match=r"there is a gate already: .*\(SqueezeExcitation\)"):
        zoo.insert_attention(net, "eca")
    assert_same(before, snapshot(net))
    report = zoo.insert_attention(net, "eca", replace=True)
    assert {gate.replaced for gate in report.gates} == {"SqueezeExcitation"}
    assert {type(net.get_submodule(gate.name)).__name__ for gate in report.gates} == {"EfficientChannelAttention"}
    assert torch.equal(net(images), expected)
    zoo.remove_attention(net)
    assert_same(plain, snapshot(net))


def test_stages_can_get_different_gates(resnet):
    zoo.insert_attention(resnet, "se", stages=[1, 2])
    zoo.insert_attention(resnet, "cbam", stages=[4])
    kinds = {name: type(module).__name__ for name, module in resnet.named_modules() if name.endswith(".attention")}
    assert kinds == {
        "layer1.0.bn2.attention": "SqueezeExcitation",
        "layer2.0.bn2.attention": "SqueezeExcitation",
        "layer4.0.bn2.attention": "ConvolutionalBlockAttentionModule",
    }


class Fragile(nn.Module):
    """A gate that cannot be built for wide maps."""

    def __init__(self, channels, *, identity_start=False):
        super().__init__()
        if channels > 20:
            raise RuntimeError("too wide")

    def forward(self, feature_map):
        return feature_map


class BreaksInTheNetwork(nn.Module):
    """A gate that works on a small map and not within the network."""

    def __init__(self, channels, *, identity_start=False):
        super().__init__()

    def forward(self, feature_map):
        if feature_map.shape[2] == 28:
            raise RuntimeError("28 rows")
        return feature_map


@pytest.mark.parametrize(("attention", "error"), [(Fragile, RuntimeError), (BreaksInTheNetwork, ValueError)])
def test_nothing_is_half_inserted_after_an_error(resnet, attention, error):
    before = snapshot(resnet)
    with pytest.raises(error, match=r"too wide|28 rows"):
        zoo.insert_attention(resnet, attention)
    assert_same(before, snapshot(resnet))


@pytest.mark.parametrize("attention", [Fragile, BreaksInTheNetwork])
def test_nothing_is_half_replaced_after_an_error(resnet, attention):
    zoo.insert_attention(resnet, "se")
    before = snapshot(resnet)
    with pytest.raises((RuntimeError, ValueError), match=r"too wide|28 rows"):
        zoo.insert_attention(resnet, attention, replace=True)
    assert_same(before, snapshot(resnet))
    assert len(zoo.remove_attention(resnet)) == 4


class CallsForward(nn.Module):
    """Calls its layer past the hooks."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, images):
        return self.norm.forward(self.conv(images))


def test_a_module_whose_hooks_do_not_run_is_refused():
    with pytest.raises(ValueError, match=r"norm \(BatchNorm2d\) did not run"):
        zoo.insert_attention(CallsForward(), "se", where="norm")


def test_frozen_backbones_stay_frozen_and_gates_train(resnet):
    resnet.requires_grad_(False)
    zoo.insert_attention(resnet, "se")
    trainable = {name for name, parameter in resnet.named_parameters() if parameter.requires_grad}
    assert trainable == {name for name, _ in resnet.named_parameters() if ".attention." in name}


def test_a_network_of_the_zoo_gets_the_names_that_create_model_gives(images):
    for name in ("resnet20", "mobilenet_v1", "mobilenet_v2"):
        torch.manual_seed(0)
        model = zoo.create_model(name, width_multiplier=0.25, stem="cifar").eval()
        plain, expected = snapshot(model), model(images)
        config = copy.deepcopy(model.config)
        zoo.insert_attention(model, "cbam")
        twin = zoo.create_model(**model.config)
        assert model.state_dict().keys() == twin.state_dict().keys()
        assert model.attention_places() == twin.attention_places()
        twin.load_state_dict(model.state_dict())
        assert torch.equal(twin.eval()(images), expected)
        assert torch.equal(model(images), expected)
        zoo.remove_attention(model)
        assert_same(plain, snapshot(model))
        assert model.config == config
        assert model.attention_places() == ()


@pytest.mark.parametrize("ratio", [2, 8])
def test_attention_may_be_a_function_of_the_width(resnet, ratio):
    report = zoo.insert_attention(
        resnet, lambda channels: SqueezeExcitation(channels, reduction_ratio=ratio, identity_start=True)
    )
    assert resnet.layer1[0].bn2.attention.mlp.hidden_channels == 8 // ratio
    assert report.attention == "<lambda>"


@pytest.mark.parametrize("flag", ["identity_start", "replace"])
def test_flags_are_flags(resnet, flag):
    with pytest.raises(ValueError, match=rf"{flag} \('no'\) must be True or False"):
        zoo.insert_attention(resnet, "se", **{flag: "no"})
