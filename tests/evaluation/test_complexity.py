"""Parameters and MACs: against published figures, torch's own counter and a formula over modules."""

import copy
import importlib.util

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import zoo
from zoo.evaluation.complexity import count_macs, count_parameters, describe_model

PAIRS = [
    ("resnet20", None, 32),
    ("resnet20", "cbam", 32),
    ("resnet18", "se", 224),
    ("resnet50", "cbam", 64),
    ("mobilenet_v1", "eca", 64),
    ("mobilenet_v2", "se", 224),
    ("mobilenet_v3_small", None, 224),
]


class Attend(nn.Module):
    """Calls a function of query, key and value with the 197 tokens of a small vision transformer."""

    def __init__(self, attend) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, images):
        tokens = images.expand(1, 2, 197, 64)
        return self.attend(tokens, tokens, tokens)


class Encode(nn.Module):
    """One layer of a transformer encoder over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)

    def forward(self, images):
        return self.layer(images[:, 0])


def count_by_modules(model: nn.Module, size: int) -> int:
    """Count kernel area x channels in x outputs over all convolution and linear modules that run."""
    total = 0

    def add(layer: nn.Module, inputs, output) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            area = torch.Size(layer.kernel_size).numel()
            total += output.numel() * layer.in_channels // layer.groups * area
        else:
            total += output.numel() * layer.in_features

    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            module.register_forward_hook(add)
    with torch.no_grad():
        model(torch.zeros(1, 3, size, size))
    return total


@pytest.mark.parametrize(("name", "attention", "size"), PAIRS)
def test_macs_equal_half_the_flops_of_torchs_counter_and_a_formula_over_modules(name, attention, size):
    model = zoo.create_model(name, attention=attention).eval()
    macs = count_macs(model, (3, size, size))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 3, size, size))
    assert macs * 2 == counter.get_total_flops()
    if attention not in ("cbam", "eca"):
        assert macs == count_by_modules(model, size)


@pytest.mark.parametrize(
    ("name", "million_macs"), [("resnet20", 40.55), ("resnet32", 68.86), ("resnet56", 125.49), ("resnet110", 252.89)]
)
def test_cifar_resnets_cost_the_sum_of_their_layers(name, million_macs):
    depth = int(name.removeprefix("resnet"))
    # Halving the sides and doubling the width keeps a layer's cost; the two layers that do so cost half of it.
    layer = 32 * 32 * 9 * 16 * 16
    expected = 32 * 32 * 9 * 3 * 16 + (depth - 4) * layer + 2 * layer // 2 + 64 * 10
    macs = count_macs(zoo.create_model(name), (3, 32, 32))
    assert macs == expected
    assert round(macs / 1e6, 2) == million_macs


def test_the_products_of_a_squeeze_excitation_are_counted():
    assert count_macs(zoo.create_attention("se", 64, reduction_ratio=16), (64, 56, 56)) == 512


@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", None])
def test_attention_costs_the_same_whichever_kernel_computes_it(backend):
    if backend is None:
        macs = count_macs(Attend(lambda query, key, value: (query @ key.mT).softmax(-1) @ value), (1, 1, 64))
    else:
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            macs = count_macs(Attend(functional.scaled_dot_product_attention), (1, 1, 64))
    assert macs * 2 == 19_870_208


@pytest.mark.parametrize(
    "operator",
    [
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
        torch.ops.aten._scaled_dot_product_flash_attention,
        torch.ops.aten._scaled_dot_product_efficient_attention,
    ],
)
def test_fused_attention_operators_are_counted(operator):
    more = (None, False) if "efficient" in str(operator) else ()
    assert count_macs(Attend(lambda *tokens: operator(*tokens, *more)), (1, 1, 64)) * 2 == 19_870_208


def test_values_may_be_of_another_width_than_keys():
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    fused = Attend(lambda query, key, value: operator(query, key, value[..., :16]))
    plain = Attend(lambda query, key, value: (query @ key.mT).softmax(-1) @ value[..., :16])
    assert count_macs(fused, (1, 1, 64)) == count_macs(plain, (1, 1, 64)) == 2 * 197 * 197 * (64 + 16)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_mode_and_gradients_do_not_change_the_count(training, context):
    tokens, width, hidden = 10, 64, 128
    encoder = Encode().train(training)
    network = zoo.create_model("resnet20", attention="cbam").train(training)
    with context():
        macs = count_macs(encoder, (1, tokens, width))
        assert count_macs(network, (3, 32, 32)) == 40_950_208
    assert macs == tokens * (4 * width * width + 2 * width * hidden) + 2 * tokens * tokens * width


def test_attention_grows_with_the_square_of_the_tokens():
    small, large = (count_macs(Encode(), (1, tokens, 64)) for tokens in (10, 20))
    assert large - 2 * small == 2 * 2 * 10 * 10 * 64


def test_counting_leaves_the_model_as_it_was():
    model = zoo.create_model("resnet20", attention="cbam")
    model.layer2.eval()
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    identities = {name: id(value) for name, value in [*model.named_parameters(), *model.named_buffers()]}
    describe_model(model, (3, 32, 32))
    assert [module.training for module in model.modules()] == modes
    assert {name: id(value) for name, value in [*model.named_parameters(), *model.named_buffers()]} == identities
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("move", ["channels_last", "bfloat16", "double", "meta"])
def test_layout_dtype_and_device_do_not_change_the_count(move):
    model = zoo.create_model("mobilenet_v2", attention="se", stem="cifar")
    expected = count_macs(model, (3, 32, 32))
    if move == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    else:
        model = model.to("meta") if move == "meta" else model.to(getattr(torch, move))
    assert count_macs(model, (3, 32, 32)) == expected


def test_transposed_and_grouped_convolutions_are_counted():
    assert count_macs(nn.ConvTranspose2d(4, 6, 3, stride=2, bias=False), (4, 5, 7)) == 5 * 7 * 4 * 6 * 9
    assert count_macs(nn.Conv2d(4, 8, 3, groups=2, stride=2), (4, 7, 7)) == 3 * 3 * 8 * 2 * 9


def test_a_shared_module_has_its_parameters_once_and_its_macs_twice():
    layer = nn.Conv2d(4, 4, 1, bias=False)
    model = nn.Sequential(layer, layer)
    assert count_parameters(model) == 16
    assert count_macs(model, (4, 3, 3)) == 2 * 16 * 9


@pytest.mark.parametrize("input_size", [(3, 32), (3, 0, 32), (3, 32.0, 32)])
def test_input_size_is_a_triple_of_positive_integers(input_size):
    with pytest.raises(ValueError, match="input_size"):
        count_macs(nn.Conv2d(3, 3, 1), input_size)


def test_description_books_every_gate_with_its_map():
    model = zoo.create_model("resnet20", attention="se", attention_stages=[2, 3])
    description = describe_model(model, (3, 32, 48))
    assert [(gate.name, gate.stage, gate.channels, gate.hidden_channels) for gate in description.gates] == [
        *[(f"layer2.{block}.attention", 2, 32, 2) for block in range(3)],
        *[(f"layer3.{block}.attention", 3, 64, 4) for block in range(3)],
    ]
    first = description.gates[0]
    assert (first.kind, first.height, first.width) == ("SqueezeExcitation", 16, 24)
    assert (first.parameters, first.macs) == (2 * 32 * 2 + 2 + 32, 2 * 32 * 2)
    plain = describe_model(zoo.create_model("resnet20"), (3, 32, 48))
    assert plain.gates == ()
    assert plain.attention_mac_share == plain.attention_parameter_share == 0
    assert description.parameters - plain.parameters == description.attention_parameters
    assert description.macs - plain.macs == description.attention_macs
    assert description.attention_mac_share == description.attention_macs / description.macs
    assert description.attention_parameter_share == description.attention_parameters / description.parameters


def test_description_names_the_native_gates_of_mobilenet_v3():
    description = describe_model(zoo.create_model("mobilenet_v3_small", stem="cifar"), (3, 32, 32))
    assert {gate.kind for gate in description.gates} == {"HardSqueezeExcitation"}
    assert [gate.hidden_channels for gate in description.gates] == [8, 24, 64, 64, 32, 40, 72, 144, 144]


def test_a_gate_within_a_gate_is_booked_once_and_token_attention_is_no_gate():
    outer = zoo.create_attention("se", 4)
    outer.add_module("attention", zoo.create_attention("se", 4))
    model = nn.ModuleDict({"attention": outer})
    model.forward = lambda images: model["attention"](images)
    assert [gate.name for gate in describe_model(model, (4, 3, 3)).gates] == ["attention"]
    encoder = Encode()
    encoder.attention = encoder.layer
    assert describe_model(encoder, (1, 10, 64)).gates == ()


HAS_TRITON = importlib.util.find_spec("triton") is not None
TOKENS, WIDTH, HEADS, HEAD_DIM = 300, 64, 2, 32
PROJECTIONS = TOKENS * 4 * WIDTH * WIDTH
PAIR = 2 * WIDTH  # one pair of tokens in all heads: the score, and the weight times the value


class OverTokens(nn.Module):
    """Gives an image of one row to an attention as a sequence."""

    def __init__(self, attention: nn.Module, **more) -> None:
        super().__init__()
        self.inner = attention
        self.more = more

    def forward(self, images):
        tokens = images.flatten(2).mT
        return self.inner(tokens, **{name: make(tokens) for name, make in self.more.items()})


each_backend = pytest.mark.parametrize(
    "backend",
    ["reference", "sdpa", "auto", pytest.param("flash", marks=pytest.mark.skipif(not HAS_TRITON, reason="no Triton"))],
)


def count_of_tokens(name: str, more: dict, **options) -> int:
    attention = zoo.create_token_attention(name, WIDTH, num_heads=HEADS, **options)
    return count_macs(OverTokens(attention, **more), (WIDTH, 1, TOKENS))


@each_backend
@pytest.mark.parametrize(
    ("name", "options", "more", "products"),
    [
        ("multi_head", {}, {}, TOKENS**2 * PAIR),
        # Masked scores are computed, and counted.
        ("multi_head", {"is_causal": True}, {}, TOKENS**2 * PAIR),
        (
            "multi_head",
            {"qk_norm": True},
            {"mask": lambda tokens: tokens.new_ones(1, 1, 300, 300).bool()},
            TOKENS**2 * PAIR,
        ),
        # 43 windows of 7, the last of them with one token of padding.
        ("window", {}, {}, 43 * 7 * 7 * PAIR),
        # The first cut after 3 tokens: 44 windows.
        ("window", {"shifted": True}, {}, 44 * 7 * 7 * PAIR),
        # 4 x 3 windows of 5 x 6 cover a grid of 20 x 15.
        ("window", {"window_size": (5, 6)}, {"grid_size": lambda _: (20, 15)}, 4 * 3 * 30 * 30 * PAIR),
        # 10 blocks of 32 queries, each with the 32 tokens before it and the 32 behind.
        ("longformer", {"num_global": 0}, {}, 10 * 32 * 96 * PAIR),
        # The global token beside them, and its own row.
        ("longformer", {}, {}, (10 * 32 * (96 + 1) + 300) * PAIR),
        # One random block of 32 more.
        ("big_bird", {}, {}, (10 * 32 * (96 + 1 + 32) + 300) * PAIR),
        # Two streams of 150 tokens in 5 blocks each.
        ("dilated", {}, {}, 2 * 5 * 32 * 96 * PAIR),
    ],
    ids=lambda value: ", ".join(value) or "plain" if isinstance(value, dict) else str(value),
)
def test_token_attention_costs_the_pairs_it_computes_whatever_computes_them(backend, name, options, more, products):
    assert count_of_tokens(name, more, backend=backend, **options) == PROJECTIONS + products


def test_a_window_costs_its_blocks_where_they_are_computed_and_all_pairs_in_the_reference():
    # 19 blocks of 16 queries with 8 tokens to either side.
    assert count_of_tokens("multi_head", {}, window=8, backend="sdpa") == PROJECTIONS + 19 * 16 * 32 * PAIR
    assert count_of_tokens("multi_head", {}, window=8, backend="reference") == PROJECTIONS + TOKENS**2 * PAIR


@each_backend
def test_cross_attention_costs_tokens_times_context(backend):
    context = {"context": lambda tokens: tokens.new_empty(1, 50, 48)}
    macs = count_of_tokens("cross", context, context_dim=48, backend=backend)
    assert macs == TOKENS * 2 * WIDTH**2 + 50 * 48 * 2 * WIDTH + TOKENS * 50 * PAIR


def test_additive_attention_costs_the_vector_of_each_head_for_every_pair():
    assert count_of_tokens("additive", {}) == PROJECTIONS + TOKENS**2 * (HEADS * HEAD_DIM + WIDTH)


def test_linear_attention_costs_two_small_matrices_for_every_token():
    state = HEADS * HEAD_DIM * (HEAD_DIM + 1)
    assert count_of_tokens("linear", {}) == PROJECTIONS + 2 * TOKENS * state
    # Causal: 5 blocks of 64, and within each its own pairs.
    within = 64 * HEADS * (HEAD_DIM + HEAD_DIM + 1)
    assert count_of_tokens("linear", {}, is_causal=True) == PROJECTIONS + 5 * 64 * (2 * state + within)
