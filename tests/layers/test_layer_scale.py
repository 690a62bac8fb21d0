import pytest
import torch

from zoo.layers.layer_scale import LayerScale


def test_every_column_has_its_own_learned_factor() -> None:
    scale = LayerScale(3, initial=0.1)
    tokens = torch.randn(2, 5, 3)
    torch.testing.assert_close(scale(tokens), 0.1 * tokens)
    scale(tokens).sum().backward()
    torch.testing.assert_close(scale.scale.grad, tokens.sum((0, 1)))


@pytest.mark.parametrize("initial", [0, -1e-5, float("inf"), float("nan"), True, "1e-5"])
def test_a_start_that_is_no_number_above_zero_is_refused(initial) -> None:
    with pytest.raises(ValueError, match=r"layer_scale .* must be a number above 0"):
        LayerScale(3, initial=initial)
