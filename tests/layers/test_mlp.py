import pytest
import torch
from torch.nn import functional

from zoo.layers.mlp import MLP


def test_it_is_two_layers_with_the_exact_gelu_between_for_each_token_alone() -> None:
    torch.manual_seed(0)
    mlp, tokens = MLP(4, 12), torch.randn(2, 5, 4)
    hidden = tokens @ mlp.fc1.weight.T + mlp.fc1.bias
    expected = (hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))) @ mlp.fc2.weight.T + mlp.fc2.bias
    torch.testing.assert_close(mlp(tokens), expected)
    torch.testing.assert_close(mlp(tokens[:, 2:3]), expected[:, 2:3])


def test_dropout_acts_after_both_layers_in_training_alone() -> None:
    torch.manual_seed(0)
    mlp, tokens = MLP(4, 12, dropout=0.5), torch.randn(64, 4)
    assert mlp(tokens).eq(0).float().mean().item() == pytest.approx(0.5, abs=0.12)
    torch.testing.assert_close(mlp.eval()(tokens), mlp.fc2(functional.gelu(mlp.fc1(tokens))))


@pytest.mark.parametrize("arguments", [(0, 4), (4, 0), (4, 2.5)])
def test_widths_are_integers_of_at_least_one(arguments) -> None:
    with pytest.raises(ValueError, match=r"_dim \(.*\) must be an integer of at least 1"):
        MLP(*arguments)
