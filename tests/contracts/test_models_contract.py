"""What holds for every registered model with every registered attention."""

import copy
import math

import pytest
import torch
from torch import nn

import zoo
from zoo.factory import create_model, list_attention_for
from zoo.models.backbone import Backbone, attention_registry

MODELS = zoo.list_models()
CONVOLUTIONAL = [name for name in MODELS if attention_registry(name).kind == "attention"]
TRANSFORMERS = [name for name in MODELS if name not in CONVOLUTIONAL]
ATTENTION = [None, "none", *zoo.list_attention()]
# Deeper members of a family have no part of their own; they are built, but not stepped with every attention.
REPRESENTATIVES = [
    name
    for name in CONVOLUTIONAL
    if name not in ("resnet32", "resnet44", "resnet56", "resnet110", "resnet34", "resnet101")
]
PAIRS = [(name, attention) for name in REPRESENTATIVES for attention in ATTENTION]
PAIRS += [(name, attention) for name in TRANSFORMERS for attention in [None, *list_attention_for(name)]]
FEW_PAIRS = [(name, attention) for name in REPRESENTATIVES for attention in [None, "cbam"]]
FEW_PAIRS += [(name, attention) for name in TRANSFORMERS for attention in [None, "window"]]


def create_narrow(name: str, attention: str | None = None, **options: object) -> Backbone:
    """Create a narrow model for small images from a fixed seed."""
    torch.manual_seed(0)
    return create_model(name, attention=attention, **{"num_classes": 5, **narrow_options(name), **options})


def narrow_options(name: str) -> dict[str, object]:
    if name in TRANSFORMERS:
        return {"embed_dim": 32, "depth": 2, "num_heads": 1, "image_size": side_for(name)}
    return {"stem": "cifar", "width_multiplier": 0.25}


def side_for(name: str) -> int:
    """Return the side of images with enough patches for a transformer, and that are quick for all."""
    return 64 if "patch16" in name else 32


def random_images(batch: int, *size: int) -> torch.Tensor:
    return torch.randn(batch, *size, generator=torch.Generator().manual_seed(1))


def images_for(name: str, batch: int) -> torch.Tensor:
    return random_images(batch, 3, side_for(name), side_for(name))


@pytest.mark.parametrize(("name", "attention"), PAIRS)
def test_one_step_of_sgd_reaches_every_parameter(name, attention):
    model = create_narrow(name, attention)
    images, labels = images_for(name, 4), torch.arange(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.003)

    def compute_loss() -> torch.Tensor:
        torch.manual_seed(2)  # the same features are dropped each time
        logits = model(images)
        assert logits.shape == (4, 5)
        return nn.functional.cross_entropy(logits, labels)

    loss = compute_loss()
    assert loss.item() == pytest.approx(math.log(5), rel=0.25)
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{key} got no gradient"
        assert parameter.grad.isfinite().all(), f"{key} got a gradient that is not finite"
        # The one hidden unit of a narrow gate may be asleep behind its ReLU; nothing else may.
        if ".attention." not in key:
            assert parameter.grad.count_nonzero(), f"{key} got a gradient of zeros"
    gates = [parameter.grad for key, parameter in model.named_parameters() if ".attention." in key]
    assert not gates or any(gradient.count_nonzero() for gradient in gates)
    optimizer.step()
    with torch.no_grad():
        assert compute_loss() < loss


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_every_pair_has_its_gates_in_slots_named_attention(name, attention):
    with torch.device("meta"):
        model = create_model(name, attention=attention)
    slots = [key for key, _ in model.named_modules() if key.rpartition(".")[2] == "attention"]
    assert [place.name for place in model.attention_places()] == slots
    assert bool(slots) == (attention not in (None, "none") or (attention is None and name.startswith("mobilenet_v3")))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_block_of_a_transformer_has_its_attention_in_a_slot_named_so(name):
    with torch.device("meta"):
        model = create_model(name)
    slots = [key for key, _ in model.named_modules() if key.rpartition(".")[2] == "attention"]
    assert slots == [f"blocks.{index}.attention" for index in range(model.config["depth"])]
    assert model.attention_places() == ()


@pytest.mark.parametrize(("name", "attention"), PAIRS)
def test_a_config_makes_the_same_network_again(name, attention):
    with torch.device("meta"):
        model = create_narrow(name, attention, in_channels=1)
        again = create_model(**model.config)
    assert again.config == model.config
    assert model.config["name"] == name
    shapes = {key: value.shape for key, value in model.state_dict().items()}
    assert {key: value.shape for key, value in again.state_dict().items()} == shapes


@pytest.mark.parametrize(("name", "attention"), FEW_PAIRS)
class TestBehaviour:
    def test_a_single_image_gives_one_row_of_the_batch(self, name, attention):
        model = create_narrow(name, attention).eval()
        images = images_for(name, 3)
        with torch.no_grad():
            together, alone = model(images), model(images[:1])
        assert alone.shape == (1, 5)
        torch.testing.assert_close(alone, together[:1])

    @pytest.mark.parametrize("size", [(33, 47), (1, 1)])
    def test_any_size_and_one_class_and_one_channel(self, name, attention, size):
        if name in TRANSFORMERS:  # patches cover an image or do not
            size = (side_for(name), 2 * side_for(name)) if size == (33, 47) else (3 * side_for(name), side_for(name))
        model = create_narrow(name, attention, num_classes=1, in_channels=1).eval()
        logits = model(random_images(2, 1, *size))
        assert logits.shape == (2, 1)
        assert logits.isfinite().all()

    def test_a_copy_is_equal_and_independent(self, name, attention):
        model = create_narrow(name, attention).eval()
        twin = copy.deepcopy(model)
        images = images_for(name, 1)
        with torch.no_grad():
            expected = model(images)
            assert torch.equal(twin(images), expected)
            for parameter in twin.parameters():
                parameter.zero_()
            assert torch.equal(model(images), expected)
        assert twin.config == model.config
        assert twin.attention_places() == model.attention_places()

    def test_channels_last_gives_the_same_logits_and_keeps_its_layout(self, name, attention):
        model = create_narrow(name, attention).eval()
        images = images_for(name, 2)
        expected = model(images)
        strides = []
        hooked = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        for module in hooked:
            module.register_forward_hook(
                lambda _, x, y: strides.append(y.is_contiguous(memory_format=torch.channels_last))
            )
        model = model.to(memory_format=torch.channels_last)
        actual = model(images.to(memory_format=torch.channels_last))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
        assert all(strides)

    def test_double_precision_and_autocast(self, name, attention):
        model = create_narrow(name, attention).eval()
        images = images_for(name, 2)
        exact = copy.deepcopy(model).double()(images.double())
        torch.testing.assert_close(model(images).double(), exact, rtol=1e-4, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(images)
        assert rounded.dtype == torch.bfloat16
        assert (rounded.double() - exact).norm() < 0.1 * exact.norm()

    def test_full_backward_hooks_see_every_part(self, name, attention):
        model = create_narrow(name, attention)
        leaves = {key: part for key, part in model.named_modules() if not list(part.children())}
        seen = set()
        for key, part in model.named_modules():
            part.register_full_backward_hook(lambda *_, key=key: seen.add(key))
        model(images_for(name, 2).requires_grad_()).sum().backward()
        assert set(leaves) <= seen

    def test_no_part_writes_into_its_input(self, name, attention):
        model = create_narrow(name, attention)
        versions = {}
        changed = []

        def before(part: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            versions[part] = inputs[0]._version

        def after(part: nn.Module, inputs: tuple[torch.Tensor, ...], _: torch.Tensor) -> None:
            if inputs[0]._version != versions[part]:
                changed.append(type(part).__name__)

        for part in model.modules():
            part.register_forward_pre_hook(before)
            part.register_forward_hook(after)
        model(images_for(name, 2))
        assert changed == []


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("resnet20", "cbam"),
        ("mobilenet_v1", None),
        ("mobilenet_v2", None),
        ("mobilenet_v3_small", None),
        ("vit_tiny_patch4_32", "linear"),
        ("cct_2_3x2_32", None),
    ],
)
def test_exported_program_takes_any_batch(name, attention):
    model = create_narrow(name, attention).eval()
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(
        model, (random_images(2, 3, 32, 32),), dynamic_shapes={"images": {0: batch}}, strict=False
    )
    for size in (1, 5):
        images = random_images(size, 3, 32, 32)
        torch.testing.assert_close(program.module()(images), model(images))


@pytest.mark.parametrize("attention", [*zoo.list_attention()])
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_seed_gives_the_same_backbone_with_and_without_attention(name, attention):
    plain, gated = create_narrow(name, "none"), create_narrow(name, attention)
    gated_state = gated.state_dict()
    for key, value in plain.state_dict().items():
        assert torch.equal(value, gated_state[key]), key
    assert torch.equal(torch.rand(3), (create_narrow(name, attention), torch.rand(3))[1])


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_gates_that_start_as_identity_leave_the_logits_of_the_plain_net(name):
    images = random_images(2, 3, 32, 32)
    plain = create_narrow(name, "none").eval()
    gated = create_narrow(name, "cbam", attention_args={"identity_start": True}).eval()
    assert torch.equal(gated(images), plain(images))


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_attention_stages_choose_the_stages(name):
    everywhere = create_narrow(name, "se").attention_places()
    last = everywhere[-1].stage
    chosen = create_narrow(name, "se", attention_stages=[last]).attention_places()
    assert chosen == tuple(place for place in everywhere if place.stage == last)
    assert len(chosen) < len(everywhere)
