from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.functional import channels_last
from zoo.functional.gating import gate_channels, gate_positions, sigmoid_gate

Gating = Callable[..., Tensor]
POOLINGS = [("mean",), ("max",), ("mean", "max"), ("max", "mean")]
GATE_OF = {
    gate_channels: lambda pooled: torch.sigmoid(pooled.sum(0)),
    gate_positions: lambda pooled: pooled.sum(1, True),
}

each_gating = pytest.mark.parametrize("gating", [gate_channels, gate_positions])


def random_map(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def run(gating: Gating, feature_map: Tensor, pooling: tuple[str, ...], upstream: Tensor) -> tuple[Tensor, Tensor]:
    feature_map = feature_map.detach().requires_grad_()
    output = gating(feature_map, pooling, GATE_OF[gating])
    (gradient,) = torch.autograd.grad(output, feature_map, upstream)
    return output, gradient


@each_gating
@pytest.mark.parametrize("pooling", POOLINGS, ids="-".join)
@pytest.mark.parametrize("size", [(5, 12, 8, 8), (3, 80, 4, 6), (2, 1, 1, 1), (1, 7, 1, 5)], ids=str)
def test_channels_last_passes_equal_the_definition(
    gating: Gating, pooling: tuple[str, ...], size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rounded values, so that maxima tie.
    feature_map, upstream = random_map(*size).round(), random_map(*size)
    in_passes = feature_map.contiguous(memory_format=torch.channels_last)
    assert channels_last.applies(in_passes)
    output, gradient = run(gating, in_passes, pooling, upstream)
    monkeypatch.setattr(channels_last, "applies", lambda _: False)
    expected, expected_gradient = run(gating, feature_map, pooling, upstream)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-11, atol=1e-11)


@each_gating
@pytest.mark.parametrize("channels", [16, 80])
def test_half_precision_passes_lose_no_more_than_the_definition(gating: Gating, channels: int) -> None:
    feature_map = random_map(8, channels, 32, 32, dtype=torch.bfloat16)
    upstream = random_map(8, channels, 32, 32, dtype=torch.bfloat16)
    exact = run(gating, feature_map.double(), ("mean", "max"), upstream.double())
    plain = run(gating, feature_map, ("mean", "max"), upstream)
    passes = run(gating, feature_map.contiguous(memory_format=torch.channels_last), ("mean", "max"), upstream)
    for reference, definition, fast in zip(exact, plain, passes, strict=True):
        assert (fast.double() - reference).norm() <= 1.5 * (definition.double() - reference).norm()


@each_gating
def test_ties_for_the_maximum_share_the_gradient_equally(gating: Gating) -> None:
    for memory_format in (torch.contiguous_format, torch.channels_last):
        feature_map = torch.ones(1, 5, 5, 5).contiguous(memory_format=memory_format).requires_grad_()
        zero_gate = {gate_channels: lambda pooled: pooled[0] - 1, gate_positions: lambda pooled: pooled - 1}[gating]
        gating(feature_map, ("max",), zero_gate).sum().backward()
        # The gate is zero, so the whole gradient comes through the maximum: 1 per value, shared by all that tie.
        torch.testing.assert_close(feature_map.grad, torch.ones(1, 5, 5, 5))


@each_gating
def test_a_dispatch_mode_sees_the_plain_operations(gating: Gating) -> None:
    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            seen.add(function.overloadpacket.__name__)
            return function(*arguments, **(options or {}))

    seen: set[str] = set()
    feature_map = random_map(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    with Recorder():
        gating(feature_map, ("mean", "max"), GATE_OF[gating])
    assert {"mean", "amax", "mul"} <= seen
    assert not {"mm", "bmm"} & seen


@each_gating
def test_a_penalty_on_the_gradient_is_added_to_the_gradient(gating: Gating) -> None:
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        feature_map = random_map(2, 4, 3, 3).contiguous(memory_format=memory_format).requires_grad_()
        output = gating(feature_map, ("mean", "max"), GATE_OF[gating]).square().sum()
        (gradient,) = torch.autograd.grad(output, feature_map, create_graph=True)
        (output + gradient.square().sum()).backward()
        results.append(feature_map.grad)
    torch.testing.assert_close(*results)


def test_gradients_asked_for_separately_do_not_mix() -> None:
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        feature_map = random_map(2, 4, 3, 3).contiguous(memory_format=memory_format).requires_grad_()
        scale = torch.ones(4, dtype=torch.float64, requires_grad=True)
        output = gate_channels(feature_map, ("mean",), lambda pooled, scale=scale: pooled[0] * scale).sum()
        (gradient,) = torch.autograd.grad(output, feature_map, create_graph=True)
        torch.autograd.grad(output, scale, retain_graph=True)
        results.append(torch.autograd.grad(gradient.square().sum(), (feature_map, scale)))
    torch.testing.assert_close(*results)


def test_the_gate_alone_may_need_a_gradient() -> None:
    scale = torch.ones(4, dtype=torch.float64, requires_grad=True)
    feature_map = random_map(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    gate_channels(feature_map, ("mean",), lambda pooled: pooled[0] * scale).sum().backward()
    torch.testing.assert_close(scale.grad, (feature_map.mean((2, 3)) * feature_map.sum((2, 3))).sum(0))


def test_a_compiler_sees_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    feature_map = random_map(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not channels_last.applies(feature_map)


def test_identity_start_is_one_at_zero() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        assert sigmoid_gate(torch.zeros(3, dtype=dtype), identity_start=True).eq(1).all()
