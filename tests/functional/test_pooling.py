from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from zoo.functional.pooling import pool_over_channels, pool_over_positions


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("value", "side", "dtype"), [(30.0, 56, torch.float16), (6.0, 112, torch.bfloat16)], ids=str)
def test_mean_accumulates_beyond_half_precision(
    value: float, side: int, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    feature_map = torch.full((1, 16, side, side), value, dtype=dtype).contiguous(memory_format=memory_format)
    (mean,) = pool_over_positions(feature_map, ("mean",))
    torch.testing.assert_close(mean.float(), torch.full((1, 16), value), rtol=0, atol=0.1)


def test_a_constant_map_shares_the_gradient_of_its_maximum() -> None:
    feature_map = torch.ones(1, 1, 5, 5, requires_grad=True)
    pool_over_positions(feature_map, ("max",)).sum().backward()
    torch.testing.assert_close(feature_map.grad, torch.full((1, 1, 5, 5), 0.04))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("pool", [pool_over_positions, pool_over_channels])
def test_compiled_ties_share_the_gradient_of_their_maximum_too(pool: Callable[..., Tensor], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 3, (2, 4, 5, 6), generator=generator).to(dtype)
    upstream = torch.randn(pool(values, ("max",)).shape, generator=generator).to(dtype)
    torch.compiler.reset()
    compiled = torch.compile(partial(pool, pooling=("max",)), backend="aot_eager", fullgraph=True)
    gradients = []
    for function, feature_map in ((compiled, values), (partial(pool, pooling=("max",)), values.double())):
        feature_map = feature_map.clone().requires_grad_()
        function(feature_map).backward(upstream.to(feature_map.dtype))
        gradients.append(feature_map.grad.double())
    tolerance = 4e-3 if dtype == torch.bfloat16 else 1e-15
    torch.testing.assert_close(*gradients, rtol=tolerance, atol=0)


@pytest.mark.parametrize(("batch", "channels"), [(1, 64), (2, 1)])
def test_rank_never_depends_on_a_size_of_one(batch: int, channels: int) -> None:
    feature_map = torch.zeros(batch, channels, 1, 7)
    assert pool_over_positions(feature_map).shape == (2, batch, channels)
    assert pool_over_channels(feature_map).shape == (batch, 2, 1, 7)


def test_branches_come_in_the_order_asked_for() -> None:
    feature_map = torch.tensor([1.0, 5.0]).reshape(1, 2, 1, 1)
    assert pool_over_channels(feature_map, ("max", "mean")).flatten().tolist() == [5.0, 3.0]
