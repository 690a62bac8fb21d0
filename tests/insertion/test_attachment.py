"""Gates survive what people do with a network afterwards: each test trains them first, so that losing one shows."""

import copy
import io

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zoo
from zoo.insertion.attachment import inserted_gates


@pytest.fixture
def gated(mixed, images):
    """A network whose gates do something, and its outputs."""
    plain = mixed(images)
    report = zoo.insert_attention(mixed, "cbam", example_input=images)
    assert [gate.name for gate in report.gates] == [
        "convnext.stochastic_depth.attention",
        "mobilenet.conv.1.attention",
        "resnet.bn2.attention",
    ]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in zoo.attention_parameters(mixed):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    expected = mixed(images).detach()
    assert (expected - plain).norm() > 1e-3 * plain.norm()
    return mixed, expected


def test_deepcopy_is_independent(gated, images):
    net, expected = gated
    duplicate = copy.deepcopy(net)
    assert torch.equal(duplicate(images), expected)
    zoo.remove_attention(duplicate)
    assert not torch.equal(duplicate(images), expected)
    assert torch.equal(net(images), expected)


def test_pickled_whole(gated, images):
    net, expected = gated
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(images), expected)
    assert len(zoo.remove_attention(loaded)) == len(list(inserted_gates(net)))


def test_state_dict_goes_into_a_fresh_network_with_gates(gated, images):
    net, expected = gated
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    fresh = copy.deepcopy(net)
    zoo.remove_attention(fresh)
    for parameter in fresh.parameters():
        nn.init.zeros_(parameter)
    zoo.insert_attention(fresh, "cbam", example_input=images)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(images), expected)


def test_compiled_without_a_graph_break(gated, images):
    net, expected = gated
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), expected, rtol=1e-5, atol=1e-5)


def test_exported_with_a_dynamic_batch_and_to_onnx(gated, images):
    onnxruntime = pytest.importorskip("onnxruntime")
    net, expected = gated
    program = torch.export.export(net, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    more = torch.cat([images, images[:1]])
    torch.testing.assert_close(program.module()(more)[:2], expected, rtol=1e-5, atol=1e-5)
    assert {name for name in program.state_dict if ".attention." in name} == {
        name for name in net.state_dict() if ".attention." in name
    }
    file = io.BytesIO()
    torch.onnx.export(program, dynamo=True, verbose=False).save(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    (output,) = session.run(None, {session.get_inputs()[0].name: more.numpy()})
    torch.testing.assert_close(torch.from_numpy(output)[:2], expected, rtol=1e-4, atol=1e-4)


def test_traced_by_fx_where_gates_hang_on_layers_of_torch(resnet, images):
    zoo.insert_attention(resnet, "cbam", identity_start=False)
    torch.testing.assert_close(torch.fx.symbolic_trace(resnet)(images), resnet(images))


class GatesAsLeaves(torch.fx.Tracer):
    def is_leaf_module(self, module, name):
        return name.endswith(".attention") or super().is_leaf_module(module, name)


def test_traced_by_fx_elsewhere_with_gates_as_leaves(gated, images):
    net, expected = gated
    graph = GatesAsLeaves().trace(net)
    torch.testing.assert_close(torch.fx.GraphModule(net, graph)(images), expected)


def test_parameters_can_be_swapped_by_functional_call(gated, images):
    net, _ = gated
    zeros = {name: torch.zeros_like(value) for name, value in net.named_parameters() if ".attention." in name}
    output = torch.func.functional_call(net, zeros, (images,))
    zoo.remove_attention(net)
    torch.testing.assert_close(output, net(images))


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.filterwarnings("ignore:Grad strides do not match bucket view strides")
def test_trains_under_ddp_with_every_gate_in_the_reduction(gated, images):
    net, _ = gated
    wrapped = DistributedDataParallel(net.train())
    for _ in range(2):  # the second step raises where a parameter took no part in the first
        wrapped(images).sum().backward()
    assert all(parameter.grad is not None for parameter in zoo.attention_parameters(wrapped))


def test_removed_from_within_a_wrapper(gated, images):
    net, _ = gated
    holder = nn.ModuleDict({"inner": net})
    names = zoo.remove_attention(holder)
    assert all(name.startswith("inner.") for name in names)
    assert list(inserted_gates(net)) == []


def test_a_conversion_that_drops_a_gate_is_told_and_converting_first_works(resnet, images):
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(resnet))
    zoo.insert_attention(converted, "se")
    assert len(zoo.attention_parameters(converted)) == 16
    zoo.insert_attention(resnet, "se")
    broken = nn.SyncBatchNorm.convert_sync_batchnorm(resnet)
    with pytest.raises(ValueError, match=r"gate layer1.0.bn2.attention does not run: .* Convert first, then insert"):
        zoo.attention_parameters(broken)


def test_replaced_gates_come_back_where_the_network_has_gone_meanwhile(trained, images):
    timm = pytest.importorskip("timm")
    model = trained(timm.create_model("mobilenetv3_small_050", num_classes=5))
    before = {name: type(module) for name, module in model.named_modules()}
    expected = model(images)
    zoo.insert_attention(model, "se", replace=True)
    duplicate = copy.deepcopy(model).double().train()
    zoo.remove_attention(duplicate)
    assert {name: type(module) for name, module in duplicate.named_modules()} == before
    assert all(module.training for module in duplicate.modules())
    torch.testing.assert_close(duplicate.eval()(images.double()).float(), expected, rtol=1e-4, atol=1e-4)


def test_attention_parameters_are_those_of_inserted_and_of_built_in_gates(resnet):
    names = {id(parameter): name for name, parameter in resnet.named_parameters()}
    with pytest.raises(ValueError, match="the model has no gate"):
        zoo.attention_parameters(resnet)
    zoo.insert_attention(resnet, "se")
    assert not any(id(parameter) in names for parameter in zoo.attention_parameters(resnet))
    assert sum(parameter.numel() for parameter in zoo.attention_parameters(resnet)) == sum(
        parameter.numel() for name, parameter in resnet.named_parameters() if ".attention." in name
    )
    model = zoo.create_model("resnet20", attention="cbam", attention_stages=[3])
    built_in = [name for name, _ in model.named_parameters() if ".attention." in name]
    assert len(zoo.attention_parameters(model)) == len(built_in) > 0
