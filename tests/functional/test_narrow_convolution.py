import pytest
import torch
from torch.nn import functional

from zoo.functional.narrow_convolution import narrow_convolution, narrow_convolution_applies


def operands(
    out_channels: int, in_channels: int, kernel_size: int, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, in_channels, 4, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(out_channels, in_channels, kernel_size, kernel_size, generator=generator, dtype=torch.float64)
    return maps.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()


@pytest.mark.parametrize(("out_channels", "in_channels", "kernel_size"), [(1, 2, 7), (3, 2, 3), (1, 1, 1), (2, 1, 9)])
def test_equals_the_convolution_and_so_do_both_gradients(out_channels: int, in_channels: int, kernel_size: int) -> None:
    maps, weight = operands(out_channels, in_channels, kernel_size)
    output = narrow_convolution(maps, weight)
    expected = functional.conv2d(maps, weight, padding=kernel_size // 2)
    torch.testing.assert_close(output, expected)
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = torch.autograd.grad(output, (maps, weight), upstream)
    expected_gradients = torch.autograd.grad(expected, (maps, weight), upstream)
    # The gradient of a tap is summed in float32.
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-6, atol=1e-6)


def test_its_gradient_can_be_differentiated() -> None:
    assert torch.autograd.gradgradcheck(narrow_convolution, operands(1, 2, 3), fast_mode=True)


def test_half_precision_loses_no_more_than_the_convolution() -> None:
    maps, weight = operands(1, 2, 7, torch.bfloat16)
    exact = functional.conv2d(maps.double(), weight.double(), padding=3)
    plain = functional.conv2d(maps, weight, padding=3)
    error, plain_error = ((output.double() - exact).norm() for output in (narrow_convolution(maps, weight), plain))
    assert error <= 1.5 * plain_error


def test_other_dtypes_and_wide_maps_stay_with_the_convolution() -> None:
    weight = torch.zeros(1, 2, 7, 7, dtype=torch.bfloat16)
    assert narrow_convolution_applies(torch.zeros(1, 2, 8, 32, dtype=torch.bfloat16), weight)
    assert not narrow_convolution_applies(torch.zeros(1, 2, 8, 33, dtype=torch.bfloat16), weight)
    assert not narrow_convolution_applies(torch.zeros(1, 2, 8, 8), weight.float())
    assert not narrow_convolution_applies(torch.zeros(1, 2, 8, 8, dtype=torch.bfloat16), weight.float())


def test_compiled_it_is_the_same_product_and_exporting_sees_the_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, weight = operands(1, 2, 7, torch.bfloat16)
    exact_operands = [operand.detach().double().requires_grad_() for operand in (maps, weight)]
    upstream = torch.randn(2, 1, 4, 5, generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = functional.conv2d(*exact_operands, padding=3)
    exact_gradients = torch.autograd.grad(exact, exact_operands, upstream.double())
    torch.compiler.reset()
    compiled = torch.compile(narrow_convolution, backend="aot_eager", fullgraph=True)(maps, weight)
    gradients = torch.autograd.grad(compiled, (maps, weight), upstream)
    for value, expected in zip((compiled, *gradients), (exact, *exact_gradients), strict=True):
        assert (value.double() - expected).norm() <= 4e-3 * expected.norm()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert narrow_convolution_applies(maps, weight)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert not narrow_convolution_applies(maps, weight)
