"""What every registered feature-map attention must do.

A new mechanism is picked up by its registration. It must bring its formula: a function ``formula(attention,
feature_map)`` in the test file that mirrors its module, written out in plain tensor arithmetic, without calling the
module.
"""

import copy
import importlib.util
import inspect
import io
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from zoo.registry import ATTENTION

TESTS = Path(__file__).parents[1] / "attention" / "feature_map"
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
WIDTH = 8

pytestmark = pytest.mark.parametrize("name", list(ATTENTION))
each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
each_start = pytest.mark.parametrize("identity_start", [False, True], ids=["fresh", "identity_start"])


def create(name: str, channels: int = WIDTH, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return ATTENTION[name](channels, **options)


def create_trained(name: str, **options: object) -> nn.Module:
    """A module in float64 whose parameters and statistics all matter, as after some training."""
    attention = create(name, **options).double()
    with torch.no_grad():
        for value in [*attention.parameters(), *attention.buffers()]:
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.1)
    return attention


def random_map(*shape: int, dtype: torch.dtype = torch.float32, layout: torch.memory_format | None = None) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    return values if layout is None else values.contiguous(memory_format=layout)


def load_formula(name: str) -> Callable[[nn.Module, Tensor], Tensor]:
    stem = ATTENTION[name].__module__.rpartition(".")[2]
    path = TESTS / f"test_{stem}.py"
    assert path.exists(), f"attention {name!r} has no test file {path.name} beside the others in {TESTS.name}"
    spec = importlib.util.spec_from_file_location(f"formula_of_{stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert hasattr(module, "formula"), f"{path.name} must define formula(attention, feature_map) for {name!r}"
    return module.formula


@each_layout
@each_start
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("size", [(2, 5, 7), (1, 1, 1), (3, 1, 6)], ids=str)
def test_equals_its_written_out_formula_in_float64(
    name: str, size: tuple[int, int, int], training: bool, identity_start: bool, layout: torch.memory_format
) -> None:
    attention = create_trained(name, identity_start=identity_start).train(training)
    reference = copy.deepcopy(attention)
    feature_map = random_map(size[0], WIDTH, *size[1:], dtype=torch.float64, layout=layout).requires_grad_()
    plain = feature_map.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    output, expected = attention(feature_map), load_formula(name)(reference, plain)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    weights = random_map(*output.shape, dtype=torch.float64)
    (output * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(feature_map.grad, plain.grad, rtol=1e-10, atol=1e-11)


@each_layout
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 7, 7), (1, 2, 9), (4, 16, 16)], ids=str)
def test_shape_dtype_and_layout_are_kept_and_values_agree_with_float64(
    name: str, size: tuple[int, int, int], dtype: torch.dtype, layout: torch.memory_format
) -> None:
    exact = create_trained(name).eval()
    attention = copy.deepcopy(exact).to(dtype)
    exact.load_state_dict(attention.state_dict())
    feature_map = random_map(size[0], WIDTH, *size[1:], dtype=dtype, layout=layout)
    output = attention(feature_map)
    assert (output.shape, output.dtype) == (feature_map.shape, dtype)
    assert output.is_contiguous(memory_format=layout)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.006}[dtype]
    torch.testing.assert_close(output.double(), exact(feature_map.double()), rtol=tolerance, atol=tolerance)


@each_layout
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_trains_under_autocast(name: str, input_dtype: torch.dtype, layout: torch.memory_format) -> None:
    attention = create(name)
    feature_map = random_map(4, WIDTH, 6, 6, dtype=input_dtype, layout=layout).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        output = attention(feature_map)
    assert output.dtype == input_dtype
    output.float().square().sum().backward()
    exact = create(name).double()
    double_map = feature_map.detach().double().requires_grad_()
    exact(double_map).square().sum().backward()
    error = (feature_map.grad.double() - double_map.grad).norm() / double_map.grad.norm()
    assert error < 0.03
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in attention.parameters())


@each_layout
def test_gradients_are_right_twice(name: str, layout: torch.memory_format) -> None:
    attention = create_trained(name)
    feature_map = random_map(2, WIDTH, 3, 2, dtype=torch.float64, layout=layout).requires_grad_()
    parameters = dict(attention.named_parameters())

    def call(feature_map: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(attention, dict(zip(parameters, values, strict=True)), (feature_map,))

    inputs = (feature_map, *parameters.values())
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


@each_layout
@pytest.mark.parametrize("size", [(1, 1, 1), (4, 6, 5)], ids=str)
@pytest.mark.parametrize("mode", ["float32", "bfloat16", "float16", "float64", "autocast"])
def test_identity_start_changes_no_bit_and_still_trains(
    name: str, mode: str, size: tuple[int, int, int], layout: torch.memory_format
) -> None:
    dtype = torch.bfloat16 if mode == "autocast" else getattr(torch, mode)
    attention = create(name, identity_start=True).to(torch.float32 if mode == "autocast" else dtype)
    feature_map = random_map(size[0], WIDTH, *size[1:], dtype=dtype, layout=layout)
    for training in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
            output = attention.train(training)(feature_map)
        assert torch.equal(output, feature_map)
    (output.float() * random_map(*output.shape)).sum().backward()
    assert max(parameter.grad.abs().max() for parameter in attention.parameters()) > 0


@each_layout
@pytest.mark.parametrize(("value", "side", "dtype"), [(30.0, 56, torch.float16), (6.0, 112, torch.bfloat16)], ids=str)
def test_pooling_of_large_half_precision_maps_does_not_overflow(
    name: str, value: float, side: int, dtype: torch.dtype, layout: torch.memory_format
) -> None:
    attention = create(name, 16).eval()
    feature_map = torch.full((1, 16, side, side), value, dtype=dtype).contiguous(memory_format=layout)
    output = copy.deepcopy(attention).to(dtype)(feature_map)
    assert output.isfinite().all()
    expected = attention(feature_map.float())
    torch.testing.assert_close(output.float(), expected, rtol=0.02, atol=0.02)


@each_layout
def test_input_is_not_changed(name: str, layout: torch.memory_format) -> None:
    feature_map = random_map(2, WIDTH, 4, 4, layout=layout)
    before = feature_map.clone()
    upstream = random_map(2, WIDTH, 4, 4, layout=layout)
    upstream_before = upstream.clone()
    create(name)(feature_map.requires_grad_()).backward(upstream)
    assert torch.equal(feature_map, before)
    assert torch.equal(upstream, upstream_before)


@each_layout
def test_works_between_in_place_activations(name: str, layout: torch.memory_format) -> None:
    attention = create(name)
    feature_map = random_map(2, WIDTH, 4, 4, layout=layout)
    in_place, separate = feature_map.clone().requires_grad_(), feature_map.clone().requires_grad_()
    torch.relu_(attention(torch.relu_(in_place * 1))).sum().backward()
    torch.relu(attention(torch.relu(separate))).sum().backward()
    assert torch.equal(in_place.grad, separate.grad)


@each_layout
def test_full_backward_hooks_see_the_gradient_of_the_input(name: str, layout: torch.memory_format) -> None:
    attention = create(name)
    seen: list[Tensor] = []
    attention.register_full_backward_hook(lambda module, to_input, to_output: seen.append(to_input[0]))
    feature_map = random_map(2, WIDTH, 4, 4, layout=layout).requires_grad_()
    attention(feature_map).square().sum().backward()
    (to_input,) = seen
    assert torch.equal(to_input, feature_map.grad)


@each_layout
def test_backward_may_run_again_and_gradients_accumulate(name: str, layout: torch.memory_format) -> None:
    attention = create(name)
    feature_map = random_map(2, WIDTH, 4, 4, layout=layout).requires_grad_()
    output = attention(feature_map).square().sum()
    output.backward(retain_graph=True)
    once = feature_map.grad.clone()
    torch.autograd.grad(output, list(attention.parameters()), retain_graph=True)
    output.backward()
    torch.testing.assert_close(feature_map.grad, 2 * once)


@each_layout
def test_is_deterministic_where_it_is_demanded(name: str, layout: torch.memory_format) -> None:
    gradients = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            attention = create(name)
            feature_map = random_map(2, WIDTH, 8, 8, dtype=torch.bfloat16, layout=layout).requires_grad_()
            with torch.autocast("cpu", torch.bfloat16):
                attention(feature_map).float().square().sum().backward()
            gradients.append([feature_map.grad, *(parameter.grad for parameter in attention.parameters())])
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@each_layout
def test_a_constant_map_gets_one_gradient_everywhere(name: str, layout: torch.memory_format) -> None:
    # Where all positions tie for the maximum, a position in the middle must not be preferred to its neighbours.
    attention = create_trained(name, channels=16).eval().float()
    feature_map = torch.ones(1, 16, 13, 13).contiguous(memory_format=layout).requires_grad_()
    attention(feature_map).sum().backward()
    middle = feature_map.grad[0, :, 6:7, 6:7]
    torch.testing.assert_close(feature_map.grad[0, :, 6, 3:10], middle[:, :, 0].expand(-1, 7), rtol=1e-3, atol=1e-4)


@each_layout
def test_export_keeps_the_batch_free(name: str, layout: torch.memory_format) -> None:
    attention = create_trained(name).float().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    example = random_map(2, WIDTH, 6, 5, layout=layout)
    exported = torch.export.export(attention, (example,), dynamic_shapes=({0: batch},)).module()
    feature_map = random_map(5, WIDTH, 6, 5, layout=layout)
    torch.testing.assert_close(exported(feature_map), attention(feature_map))


def test_onnx_runtime_agrees_at_another_batch_size(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    attention = create_trained(name).float().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The exporter's own imports warn of their future.
        program = torch.onnx.export(
            attention, (random_map(2, WIDTH, 6, 5),), dynamo=True, dynamic_shapes=({0: batch},), verbose=False
        )
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    feature_map = random_map(5, WIDTH, 6, 5)
    (output,) = session.run(None, {session.get_inputs()[0].name: feature_map.numpy()})
    torch.testing.assert_close(torch.from_numpy(output), attention(feature_map).detach(), rtol=1e-4, atol=1e-5)


@each_layout
def test_compiles_to_one_graph(name: str, layout: torch.memory_format) -> None:
    attention = create_trained(name).eval()
    feature_map = random_map(2, WIDTH, 6, 5, dtype=torch.float64, layout=layout).requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)
    gradients = [
        torch.autograd.grad(function(feature_map).square().sum(), feature_map) for function in (compiled, attention)
    ]
    torch.testing.assert_close(*gradients)


def test_deepcopy_and_state_dict_bring_the_same_function(name: str) -> None:
    attention = create_trained(name).eval()
    feature_map = random_map(2, WIDTH, 4, 4, dtype=torch.float64)
    file = io.BytesIO()
    torch.save(attention.state_dict(), file)
    file.seek(0)
    restored = ATTENTION[name](WIDTH).double().eval()
    restored.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(copy.deepcopy(attention)(feature_map), attention(feature_map))
    assert torch.equal(restored(feature_map), attention(feature_map))


def test_another_width_is_refused_by_both_numbers(name: str) -> None:
    with pytest.raises(ValueError, match=rf"feature map has 3 channels, but the attention was built for {WIDTH}"):
        create(name)(random_map(2, 3, 4, 4))


@pytest.mark.parametrize("value", [0, -4, 2.5, 0.0625, True, "16", None], ids=repr)
def test_widths_and_ratios_are_refused_by_value(name: str, value: object) -> None:
    options = [
        option
        for option in ("channels", "reduction_ratio", "min_hidden_channels")
        if option in inspect.signature(ATTENTION[name]).parameters
    ]
    for option in options:
        arguments = {"channels": WIDTH} | {option: value}
        with pytest.raises(ValueError) as refusal:
            ATTENTION[name](**arguments)
        assert str(refusal.value) == f"{option} ({value!r}) must be an integer of at least 1"


def test_the_switch_takes_only_true_and_false(name: str) -> None:
    with pytest.raises(ValueError, match=r"identity_start \('false'\) must be True or False"):
        ATTENTION[name](WIDTH, identity_start="false")
