"""Vision transformers: sizes, cost, tokens, poolings, positions, attentions, attention weights."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

import zoo
from zoo.evaluation.complexity import count_macs, count_parameters
from zoo.models import vision_transformer
from zoo.models.backbone import Backbone

TINY = {"embed_dim": 64, "depth": 2, "num_heads": 2}


def create_tiny(name: str = "vit_tiny_patch4_32", **options: object) -> Backbone:
    torch.manual_seed(0)
    return zoo.create_model(name, **{**TINY, "num_classes": 5, **options}).eval()


def random_images(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vit_tiny_patch16_224", 5_717_416),
        ("vit_small_patch16_224", 22_050_664),
        ("vit_base_patch16_224", 86_567_656),
        ("cct_7_3x1_32", 3_765_514),
    ],
)
def test_parameter_counts_are_those_of_the_papers_networks(name: str, count: int) -> None:
    with torch.device("meta"):
        assert count_parameters(zoo.create_model(name)) == count


def test_parameters_and_macs_are_those_counted_by_hand() -> None:
    tokens, width, hidden = 65, 192, 768
    block = 3 * width * (width + 1) + width * (width + 1) + width * hidden * 2 + hidden + width + 4 * width
    parameters = 48 * width + width + (1 + tokens) * width + 12 * block + 2 * width + 10 * (width + 1)
    products = 4 * width * width + 2 * width * hidden
    macs = 64 * 48 * width + 12 * (tokens * products + 2 * tokens * tokens * width) + 10 * width
    with torch.device("meta"):
        model = zoo.create_model("vit_tiny_patch4_32")
    assert (count_parameters(model), count_macs(model, (3, 32, 32))) == (parameters, macs) == (5_362_762, 365_107_584)


@pytest.mark.parametrize("backend", ["auto", "sdpa", "reference"])
def test_the_products_of_attention_grow_with_the_square_of_the_tokens_on_every_backend(backend: str) -> None:
    with torch.device("meta"):
        model = zoo.create_model("vit_tiny_patch16_224", attention="multi_head", attention_args={"backend": backend})
    small, large = (count_macs(model, (3, side, side)) for side in (224, 384))
    tokens, more = 197, 577
    per_token = 12 * (4 * 192 * 192 + 2 * 192 * 768)
    assert large - small == (more - tokens) * (768 * 192 + per_token) + 12 * 2 * 192 * (more**2 - tokens**2)


def test_macs_of_the_base_network_are_those_of_torchvisions_table() -> None:
    import torchvision

    with torch.device("meta"):
        model = zoo.create_model("vit_base_patch16_224")
    meta = torchvision.models.ViT_B_16_Weights.IMAGENET1K_V1.meta
    assert round(count_macs(model, (3, 224, 224)) / 1e9, 3) == meta["_ops"]


@pytest.mark.parametrize("name", ["vit_tiny_patch4_32", "cct_2_3x2_32"])
@pytest.mark.parametrize("pooling", ["class_token", "mean", "attention"])
@pytest.mark.parametrize("num_registers", [0, 3])
def test_tokens_stand_as_prefix_and_grid(name: str, pooling: str, num_registers: int) -> None:
    model = create_tiny(name, pooling=pooling, num_registers=num_registers)
    images = random_images(2, 3, 32, 40)
    rows, columns = model.grid_size((32, 40))
    assert (rows, columns) == (8, 10)
    assert model.num_prefix_tokens == num_registers + (pooling == "class_token")
    assert model.encode(images).shape == (2, model.num_prefix_tokens + 80, 64)
    assert model(images).shape == (2, 5)


def test_every_pooling_reads_what_it_says() -> None:
    tokens = random_images(2, 67, 64)
    model = create_tiny(num_registers=2)
    assert torch.equal(model.summarise(tokens), tokens[:, 0])
    model = create_tiny(pooling="mean", num_registers=2)
    expected = nn.functional.layer_norm(tokens[:, 2:].mean(1), (64,), eps=1e-6)
    torch.testing.assert_close(model.summarise(tokens), expected)
    model = create_tiny(pooling="attention", num_registers=2)
    torch.testing.assert_close(model.summarise(tokens), model.pool(tokens[:, 2:]))


@pytest.mark.parametrize(
    ("pooling", "norm", "other"),
    [("class_token", "norm", "head_norm"), ("attention", "norm", "head_norm"), ("mean", "head_norm", "norm")],
)
def test_tokens_are_normalised_once_before_the_head(pooling: str, norm: str, other: str) -> None:
    model, images = create_tiny(pooling=pooling), random_images(2, 3, 32, 32)
    assert isinstance(model.get_submodule(other), nn.Identity)
    before = model(images)
    with torch.no_grad():
        model.get_submodule(norm).weight.zero_()
    torch.testing.assert_close(model(images), model.head.bias.expand(2, 5))
    assert not torch.allclose(before, model(images))


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "relative"])
def test_with_positions_the_order_of_the_patches_matters(positions: str) -> None:
    images = random_images(2, 3, 32, 32)
    assert not torch.allclose(
        create_tiny(positions=positions)(shuffle(images)), create_tiny(positions=positions)(images)
    )


def test_without_positions_the_patches_are_a_set() -> None:
    images = random_images(2, 3, 32, 32)
    model = create_tiny(positions="none")
    torch.testing.assert_close(model(shuffle(images)), model(images))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(model.encode(shuffle(images))[:, 1:], model.encode(images)[:, 1:][:, order])


def shuffle(images: torch.Tensor) -> torch.Tensor:
    """Put the 8 x 8 patches of 4 pixels into another order, the same for all images."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(2))
    patches = nn.functional.unfold(images, 4, stride=4)[..., order]
    return nn.functional.fold(patches, (32, 32), 4, stride=4)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "relative", "none"])
@pytest.mark.parametrize("size", [(32, 32), (16, 64), (48, 20)])
def test_images_of_other_sizes_work_with_every_scheme(positions: str, size: tuple[int, int]) -> None:
    model = create_tiny(positions=positions, num_registers=1)
    logits = model(random_images(2, 3, *size))
    assert logits.shape == (2, 5)
    assert logits.isfinite().all()


def test_learned_positions_are_resized_for_another_grid_of_as_many_tokens() -> None:
    model = create_tiny()
    wide = model(random_images(2, 3, 16, 64))
    unresized = copy.deepcopy(model)
    unresized.positions.grid = nn.Parameter(model.positions.grid.detach().reshape(1, 4, 16, 64))
    assert not torch.allclose(unresized(random_images(2, 3, 16, 64)), wide)
    resized = create_tiny(image_size=[16, 64])
    resized.load_state_dict(model.state_dict())
    torch.testing.assert_close(resized(random_images(2, 3, 16, 64)), wide)


def test_a_class_token_keeps_its_position_when_the_grid_is_resized() -> None:
    model = create_tiny(image_size=64)
    small = create_tiny()
    model.load_state_dict(small.state_dict())
    assert torch.equal(model.positions.prefix, small.positions.prefix)
    assert model.positions.grid.shape == (1, 16, 16, 64)


def test_too_few_tokens_draw_a_warning_that_says_what_to_use() -> None:
    vision_transformer._warn_of_few_tokens.cache_clear()
    model = create_tiny("vit_tiny_patch16_224")
    message = (
        r"an image of 32 x 32 has only 4 tokens \(2 x 2\), too few .* such as vit_tiny_patch4_32, or larger images"
    )
    with pytest.warns(UserWarning, match=message):
        model(random_images(1, 3, 32, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(random_images(1, 3, 32, 32))  # said once
        model(random_images(1, 3, 64, 64))
    vision_transformer._warn_of_few_tokens.cache_clear()
    with pytest.warns(UserWarning, match="only 4 tokens"):
        create_tiny("vit_tiny_patch16_224", image_size=32)


@pytest.mark.parametrize("attention", zoo.factory.list_attention_for("vit_tiny_patch4_32"))
def test_every_self_attention_stands_in_every_block(attention: str) -> None:
    model = create_tiny(attention=attention).train()
    kinds = {type(block.attention) for block in model.blocks}
    assert kinds == {zoo.registry.TOKEN_ATTENTION[attention]}
    model(random_images(2, 3, 32, 32)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.count_nonzero(), name


def test_windows_of_rows_and_columns_are_told_the_grid() -> None:
    options = {"attention": "window", "attention_args": {"window_size": [4, 4]}}
    model = create_tiny(**options, pooling="mean")
    weights = model.attention_weights(random_images(1, 3, 32, 40), layers=[0])[0]
    visible = (weights[0, 0] > 0).unflatten(0, (8, 10)).unflatten(-1, (8, 10))
    assert visible[1, 2].nonzero().tolist() == [[row, column] for row in range(4) for column in range(4)]
    with pytest.raises(
        ValueError, match=r"over rows and columns has no place for 1 tokens before the grid: take pooling"
    ):
        create_tiny(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"attention": "se"},
            r"attention 'se' is for feature maps, and model 'vit_tiny_patch4_32' takes one for tokens: ",
        ),
        ({"attention": "none"}, r"cannot be without attention: leave it out for multi_head, or name one of additive"),
        (
            {"attention": "cross"},
            r"attention 'cross' cannot stand in 'vit_tiny_patch4_32': it takes context besides tok",
        ),
        ({"attention": "windw"}, r"unknown token attention 'windw'\. Did you mean 'window'"),
        ({"attention": "multi_head", "attention_args": {"num_heads": 4}}, r"itself sets num_heads of its attentions"),
        (
            {"attention": "linear", "attention_args": {"backend": "sdpa"}},
            r"unknown option 'backend' of token attention",
        ),
        ({"attention_args": {"window": 3}}, r"attention_args .* has no effect with attention=None"),
        ({"attention_stages": [1]}, r"attention_stages \(\[1\]\) has no effect: every block"),
        (
            {"attention": "linear", "positions": "rotary"},
            r"'rotary' has no effect on LinearAttention, which takes no rot",
        ),
        (
            {"attention": "window", "positions": "relative"},
            r"'relative' has no effect on WindowAttention, which takes no",
        ),
        ({"stem": "cifar"}, r"unknown option 'stem' of model"),
        ({"width_multiplier": 0.5}, r"unknown option 'width_multiplier' of model"),
        ({"image_size": 33}, r"the image's height \(33\) must be a multiple of the patch size \(4\)"),
        ({"image_size": [32, 32, 3]}, r"image_size \(\[32, 32, 3\]\) must be a side in pixels, or height and width"),
        ({"image_size": "32"}, r"image_size \('32'\) must be"),
        ({"pooling": "cls"}, r"pooling \('cls'\) must be one of class_token, mean, attention"),
        ({"positions": "absolute"}, r"positions \('absolute'\) must be one of learned, sinusoidal, rotary"),
        ({"num_registers": -1}, r"num_registers \(-1\) must be an integer of at least 0"),
        ({"num_heads": 5}, r"num_heads \(5\) must divide embed_dim \(64\)"),
        ({"depth": 0}, r"depth \(0\) must be"),
        ({"mlp_ratio": 0}, r"mlp_ratio \(0\) must be a number above 0"),
        ({"drop_path_rate": 1}, r"drop_path_rate \(1\) must be"),
        ({"dropout": -0.1}, r"dropout \(-0\.1\) must be"),
        ({"layer_scale": 0}, r"layer_scale \(0\) must be a number above 0"),
        ({"qk_norm": "yes"}, r"qk_norm \('yes'\) must be True or False"),
        ({"num_classes": 0}, r"num_classes \(0\) must be"),
        ({"in_channels": 0}, r"in_channels \(0\) must be"),
    ],
)
def test_mistakes_are_refused_with_the_fact_and_what_to_do(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_tiny(**options)


def test_a_convolutional_net_refuses_attention_between_tokens() -> None:
    with pytest.raises(
        ValueError, match="'multi_head' is for tokens, and model 'resnet20' takes one for feature maps: "
    ):
        zoo.create_model("resnet20", attention="multi_head")


def test_attention_weights_are_those_of_the_formula_on_the_tokens_of_each_layer() -> None:
    model = create_tiny(positions="relative", num_registers=1, qk_norm=True)
    images = random_images(2, 3, 16, 20)
    seen = []
    for block in model.blocks:
        block.attention.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    expected = model(images)
    first, last = model.attention_weights(images)
    assert torch.equal(model(images), expected)
    for block, tokens, weights in zip(model.blocks, seen, (first, last), strict=False):
        query, key, _ = block.attention.project(tokens)
        scores = query @ key.mT / math.sqrt(32) + model.positions((4, 5))
        torch.testing.assert_close(weights, scores.softmax(-1), rtol=1e-4, atol=1e-6)
    assert first.shape == (2, 2, 22, 22)
    torch.testing.assert_close(last.sum(-1), torch.ones(2, 2, 22))


def test_attention_weights_come_for_the_layers_and_heads_asked_for_in_their_order() -> None:
    model = create_tiny(depth=3)
    images = random_images(1, 3, 32, 32)
    every = model.attention_weights(images)
    assert len(every) == 3
    some = model.attention_weights(images, layers=[2, 0], heads=[1])
    assert torch.equal(some[0], every[2][:, 1:])
    assert torch.equal(some[1], every[0][:, 1:])
    assert not some[0].requires_grad
    assert model.attention_weights(images, layers=[]) == []
    for layers in ([3], [-1], [True]):
        with pytest.raises(ValueError, match=r"layers \(.*\) must be numbers from 0 to 2"):
            model.attention_weights(images, layers=layers)
    with pytest.raises(ValueError, match="head"):
        model.attention_weights(images, heads=[2])


def test_a_patch_alone_is_seen_at_its_place_in_a_map_that_is_not_square() -> None:
    """Rows and columns are told apart: the token of patch (2, 3) of a 7 x 5 grid is number 2 * 5 + 3 of the grid."""
    model = create_tiny(num_registers=4, positions="none")
    dark, lit = torch.zeros(1, 3, 28, 20), torch.zeros(1, 3, 28, 20)
    lit[..., 8:12, 12:16] = 1
    model.blocks = nn.ModuleList()
    changed = (model.encode(lit) != model.encode(dark)).any(-1)[0]
    assert changed[: model.num_prefix_tokens].sum() == 0
    assert changed[model.num_prefix_tokens :].unflatten(0, model.grid_size((28, 20))).nonzero().tolist() == [[2, 3]]


def test_initial_weights_are_those_of_the_papers() -> None:
    torch.manual_seed(0)
    model = zoo.create_model("vit_tiny_patch4_32", num_registers=1)
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert all(module.weight.std().item() == pytest.approx(0.02, rel=0.05) for module in linear)
    assert not any(module.bias.count_nonzero() for module in linear)
    for tokens in (model.class_token, model.registers, model.positions.grid, model.positions.prefix):
        assert tokens.std().item() == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("attention", ["linear", "window", "big_bird"])
def test_a_seed_gives_the_same_network_around_every_attention(attention: str) -> None:
    plain, other = create_tiny().state_dict(), create_tiny(attention=attention).state_dict()
    for key, value in plain.items():
        assert torch.equal(other[key], value), key


def test_drop_path_rises_linearly_to_its_rate() -> None:
    model = create_tiny(depth=5, drop_path_rate=0.2)
    assert [block.drop_path1.rate for block in model.blocks] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    assert [block.drop_path2.rate for block in model.blocks] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])


def test_dropout_reaches_tokens_attention_and_perceptrons_in_training_alone() -> None:
    model = create_tiny(dropout=0.3)
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert rates == [0.3] * (1 + 3 * 2)
    images = random_images(2, 3, 32, 32)
    assert torch.equal(model(images), model(images))
    model.train()
    assert not torch.equal(model(images), model(images))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_qk_norm_under_autocast_and_in_half_precision(dtype: torch.dtype) -> None:
    model = create_tiny(qk_norm=True, positions="rotary")
    images = random_images(2, 3, 32, 32)
    exact = copy.deepcopy(model).double()(images.double())
    with torch.autocast("cpu", dtype):
        rounded = model(images)
    rounded.sum().backward()
    assert rounded.dtype == dtype
    assert (rounded.double() - exact).norm() < 0.1 * exact.norm()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())
    half = copy.deepcopy(model).to(dtype)(images.to(dtype))
    assert (half.double() - exact).norm() < 0.1 * exact.norm()


def test_compiled_it_gives_the_same_logits_and_gradients_without_a_break() -> None:
    model = create_tiny(depth=1, num_registers=1)
    images = random_images(2, 3, 16, 20)
    expected = model(images)
    wanted = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    actual = compiled(images)
    torch.testing.assert_close(actual, expected)
    for mine, theirs in zip(torch.autograd.grad(actual.square().sum(), list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_an_exported_program_takes_any_batch(positions: str) -> None:
    model = create_tiny(positions=positions, depth=1)
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(
        model, (random_images(2, 3, 32, 32),), dynamic_shapes={"images": {0: batch}}, strict=False
    )
    for size in (1, 5):
        images = random_images(size, 3, 32, 32)
        torch.testing.assert_close(program.module()(images), model(images))


def test_it_has_no_gate_and_insertion_says_where_to_look() -> None:
    model = create_tiny()
    assert model.attention_places() == ()
    with pytest.raises(ValueError, match=r"no block of a known family in this VisionTransformer"):
        zoo.insert_attention(model, "se")
    report = zoo.insert_attention(model, "se", where="embedding.projection")
    assert [(gate.channels, gate.height, gate.width) for gate in report.gates] == [(64, 8, 8)]
