import torch
from torch import Tensor, nn

from zoo.attention.feature_map.cbam import ConvolutionalBlockAttentionModule


def formula(attention: nn.Module, feature_map: Tensor) -> Tensor:
    """F' = M_c(F) * F, then F'' = M_s(F') * F'."""
    state = attention.state_dict()
    weight_1, bias_1, weight_2, bias_2 = (state[f"mlp.{name}"] for name in ("0.weight", "0.bias", "2.weight", "2.bias"))
    scale = 2 if attention.identity_start else 1

    def mlp(pooled: Tensor) -> Tensor:
        return (pooled @ weight_1.T + bias_1).clamp(min=0) @ weight_2.T + bias_2

    flat = feature_map.flatten(2)
    channel_logits = mlp(flat.sum(2) / flat.shape[2]) + mlp(flat.sort(2).values[:, :, -1])
    gated = feature_map * (scale / (1 + torch.exp(-channel_logits)))[:, :, None, None]

    height, width = gated.shape[2:]
    maps = torch.stack([gated.sum(1) / gated.shape[1], gated.sort(1).values[:, -1]], dim=1)
    padded = nn.functional.pad(maps, (3, 3, 3, 3))
    logits = torch.zeros_like(maps[:, 0])
    for row in range(7):
        for column in range(7):
            window = padded[:, :, row : row + height, column : column + width]
            logits = logits + (window * state["spatial.conv.weight"][0, :, row, column][:, None, None]).sum(1)
    if attention.training and logits.numel() > 1:
        center = logits.sum() / logits.numel()
        variance = ((logits - center) ** 2).sum() / logits.numel()
    else:
        center, variance = state["spatial.norm.running_mean"], state["spatial.norm.running_var"]
    logits = (logits - center) / torch.sqrt(variance + 1e-5) * state["spatial.norm.weight"] + state["spatial.norm.bias"]
    return gated * (scale / (1 + torch.exp(-logits)))[:, None]


def test_zero_weights_quarter_the_map() -> None:
    attention = ConvolutionalBlockAttentionModule(4)
    for parameter in attention.parameters():
        nn.init.zeros_(parameter)
    feature_map = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(attention(feature_map), feature_map * 0.25)


def test_both_gates_shrink_and_never_flip_a_positive_map() -> None:
    torch.manual_seed(0)
    feature_map = torch.rand(2, 16, 6, 6) + 0.1
    gated = ConvolutionalBlockAttentionModule(16)(feature_map)
    assert ((gated > 0) & (gated < feature_map)).all()


def test_parameters_are_those_of_the_two_halves() -> None:
    attention = ConvolutionalBlockAttentionModule(64, reduction_ratio=16)
    num_parameters = sum(parameter.numel() for parameter in attention.parameters())
    assert num_parameters == (64 * 4 + 4 + 4 * 64 + 64) + (98 + 2)


def test_it_is_its_two_halves_in_sequence() -> None:
    from zoo.registry import ATTENTION

    torch.manual_seed(0)
    whole = ConvolutionalBlockAttentionModule(16)
    channel, spatial = ATTENTION["cbam_channel"](16), ATTENTION["sam"](16)
    channel.mlp.load_state_dict(whole.mlp.state_dict())
    spatial.spatial.load_state_dict(whole.spatial.state_dict())
    feature_map = torch.randn(2, 16, 5, 7)
    assert torch.equal(whole(feature_map), spatial(channel(feature_map)))
