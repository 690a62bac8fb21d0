"""What every registered token attention must do.

A new mechanism is picked up by its registration. It must bring its formula: a function ``formula(attention, tokens,
token_mask)`` in the test file that mirrors its module, written out in plain tensor arithmetic from the module's state
dict, without calling the module. Where ``forward`` takes a ``context``, ``formula(attention, tokens, token_mask,
context, context_mask)``.
"""

import copy
import importlib.util
import inspect
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.evaluation.complexity import count_macs
from zoo.functional import attention as attend
from zoo.functional.attention import BACKENDS
from zoo.functional.rotation import Rotation
from zoo.layers.positions import RotaryPositions2d
from zoo.registry import TOKEN_ATTENTION

TESTS = Path(__file__).parents[1] / "attention" / "token"
WIDTH, HEADS = 64, 2

pytestmark = pytest.mark.parametrize("name", list(TOKEN_ATTENTION))
LENGTHS = {"all tokens": None, "padding": [12, 5, 1], "an empty sample": [12, 0, 7]}
each_padding = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)


def create(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return TOKEN_ATTENTION[name](WIDTH, num_heads=HEADS, **options)


def takes(name: str, option: str) -> bool:
    return option in inspect.signature(TOKEN_ATTENTION[name]).parameters


def draw(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def mask_of(lengths: list[int] | None, tokens: int) -> Tensor | None:
    return None if lengths is None else torch.arange(tokens) < torch.tensor(lengths)[:, None]


def context_of(attention: nn.Module, batch: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """A second sequence for the mechanisms that look at one; its first sample has three tokens only."""
    if "context" not in inspect.signature(attention.forward).parameters:
        return {}
    context_mask = torch.arange(9) < torch.tensor([3] + [9] * (batch - 1))[:, None]
    return {"context": draw(batch, 9, WIDTH, seed=2, dtype=dtype), "context_mask": context_mask}


def run(attention: nn.Module, tokens: Tensor, token_mask: Tensor | None = None) -> Tensor:
    return attention(tokens, token_mask=token_mask, **context_of(attention, len(tokens), tokens.dtype))


def runs_here(backend: str) -> bool:
    """Whether a backend can compute anything on this machine's processor."""
    tokens = torch.zeros(1, 1, 1, 8)
    try:
        attend(tokens, tokens, tokens, backend=backend)
    except ValueError:
        return False
    return True


def load_formula(name: str) -> Callable[..., Tensor]:
    stem = TOKEN_ATTENTION[name].__module__.rpartition(".")[2]
    path = TESTS / f"test_{stem}.py"
    assert path.exists(), f"token attention {name!r} has no test file {path.name} beside the others in {TESTS.name}"
    spec = importlib.util.spec_from_file_location(f"formula_of_token_{stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert hasattr(module, "formula"), f"{path.name} must define formula(attention, tokens, token_mask) for {name!r}"
    return module.formula


def differentiate(function: Callable[[Tensor], Tensor], attention: nn.Module, tokens: Tensor) -> list[Tensor]:
    """Output, and gradients for the tokens and all parameters, of a loss whose gradient has odd strides."""
    tokens = tokens.clone().requires_grad_()
    parameters = list(attention.parameters())
    output = function(tokens)
    upstream = draw(output.shape[-1], *output.shape[:2], seed=3, dtype=output.dtype).permute(1, 2, 0)
    return [output.detach(), *torch.autograd.grad((output * upstream).sum(), [tokens, *parameters])]


@each_padding
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_equals_its_written_out_formula_in_float64(name: str, training: bool, lengths: list[int] | None) -> None:
    attention = create(name).double().train(training)
    tokens, token_mask = draw(3, 12, WIDTH), mask_of(lengths, 12)
    formula, more = load_formula(name), context_of(attention, 3, torch.float64)
    mine = differentiate(lambda tokens: run(attention, tokens, token_mask), attention, tokens)
    theirs = differentiate(lambda tokens: formula(attention, tokens, token_mask, **more), attention, tokens)
    assert mine[0].shape == tokens.shape
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@each_padding
def test_loses_no_more_than_its_formula_in_the_same_dtype(
    name: str, backend: str, dtype: torch.dtype, lengths: list[int] | None
) -> None:
    """Output error at most twice, gradient error at most three times that of the formula computed in the dtype."""
    if backend != "auto" and not takes(name, "backend"):
        pytest.skip("computed in one way")
    if not runs_here(backend):
        pytest.skip(f"{backend} cannot run here")
    attention = create(name, **({"backend": backend} if takes(name, "backend") else {})).to(dtype)
    exact = copy.deepcopy(attention).double()
    tokens, token_mask = draw(3, 12, WIDTH, dtype=dtype), mask_of(lengths, 12)
    formula = load_formula(name)

    def errors(function: Callable[[Tensor], Tensor]) -> list[float]:
        results = differentiate(function, attention, tokens)
        return [(one.double() - other).norm().item() for one, other in zip(results, truth, strict=True)]

    def written_out(attention: nn.Module) -> Callable[[Tensor], Tensor]:
        return lambda tokens: formula(attention, tokens, token_mask, **context_of(attention, 3, tokens.dtype))

    more = context_of(attention, 3, dtype)
    double_more = {key: value.double() if value.is_floating_point() else value for key, value in more.items()}
    truth = differentiate(lambda tokens: formula(exact, tokens, token_mask, **double_more), exact, tokens.double())
    plain, ours = errors(written_out(attention)), errors(lambda tokens: run(attention, tokens, token_mask))
    scales = [tensor.norm().item() for tensor in truth]
    for place, (error, limit, scale) in enumerate(zip(ours, plain, scales, strict=True)):
        floor = torch.finfo(dtype).eps * scale / 4
        assert error <= (2 if place == 0 else 3) * max(limit, floor), (place, error, limit)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, 1e30])
def test_what_padding_holds_reaches_nothing_and_zeros_come_out(name: str, garbage: float) -> None:
    attention = create(name)
    token_mask = mask_of([12, 5, 0], 12)
    clean = draw(3, 12, WIDTH, dtype=torch.float32)
    dirty = clean.masked_fill(~token_mask[..., None], garbage)
    mine, theirs = (
        differentiate(lambda tokens: run(attention, tokens, token_mask), attention, tokens) for tokens in (dirty, clean)
    )
    for one, other in zip(mine, theirs, strict=True):
        assert torch.equal(one, other)
    assert mine[0][~token_mask].eq(0).all()
    assert mine[1][~token_mask].eq(0).all()


def test_padding_changes_nothing_for_the_tokens_before_it(name: str) -> None:
    attention = create(name).double()
    tokens = draw(2, 12, WIDTH)
    padded = run(attention, tokens, mask_of([7, 7], 12))
    torch.testing.assert_close(padded[:, :7], run(attention, tokens[:, :7]), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("tokens", [1, 2, 65, 197])
def test_any_number_of_tokens(name: str, tokens: int) -> None:
    attention = create(name).double()
    given = draw(2, tokens, WIDTH)
    expected = load_formula(name)(attention, given, None, **context_of(attention, 2, torch.float64))
    torch.testing.assert_close(run(attention, given), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_trains_under_autocast(name: str, dtype: torch.dtype) -> None:
    attention = create(name, qk_norm=True)
    exact = copy.deepcopy(attention)
    tokens, token_mask = draw(3, 12, WIDTH, dtype=torch.float32), mask_of([12, 0, 7], 12)

    def half(tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype):
            output = run(attention, tokens, token_mask)
        assert output.dtype == dtype
        return output

    mine = differentiate(half, attention, tokens)
    theirs = differentiate(lambda tokens: run(exact, tokens, token_mask), exact, tokens)
    names = ["output", "tokens", *(name for name, _ in attention.named_parameters())]
    gradients = {label: other.norm() for label, other in zip(names, theirs, strict=True)}
    for label, one, other in zip(names, mine, theirs, strict=True):
        assert one.isfinite().all(), label
        if label != "output":
            assert one.dtype == torch.float32
        # What is added to all keys alike changes no weight of a softmax: its gradient is rounding alone.
        scale = gradients["query_norm.bias" if label == "key_norm.bias" else label]
        assert (one - other).norm() <= 0.03 * scale, label


def test_dropout_acts_in_training_only_and_follows_the_seed(name: str) -> None:
    rates = {key: 0.5 for key in ("attention_dropout", "projection_dropout") if takes(name, key)}
    assert rates
    tokens = draw(2, 12, WIDTH, dtype=torch.float32)
    plain = create(name).eval()
    for rate in rates:
        attention = create(name, **{rate: 0.5})

        def draw_with(seed: int, attention: nn.Module = attention) -> Tensor:
            torch.manual_seed(seed)
            return run(attention, tokens)

        assert torch.equal(draw_with(0), draw_with(0))
        assert not torch.equal(draw_with(0), draw_with(1))
        assert torch.equal(run(attention.eval(), tokens), run(plain, tokens))


def test_weights_on_demand_are_those_of_the_output(name: str) -> None:
    attention = create(name).double()
    tokens, token_mask = draw(3, 12, WIDTH), mask_of([12, 0, 7], 12)
    context = context_of(attention, 3, torch.float64)
    weights = attention.attention_weights(tokens, token_mask=token_mask, **context)
    source = context.get("context", tokens)
    layer, last = getattr(attention, "query_key_value", None), WIDTH
    layer = attention.key_value if layer is None else layer
    value = (source @ layer.weight[-last:].T + layer.bias[-last:]).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    mixed = (weights @ value).transpose(1, 2).flatten(2)
    expected = (mixed @ attention.projection.weight.T + attention.projection.bias) * token_mask[..., None]
    torch.testing.assert_close(run(attention, tokens, token_mask), expected, rtol=1e-10, atol=1e-11)
    one = attention.attention_weights(tokens, heads=[1], token_mask=token_mask, **context)
    torch.testing.assert_close(one, weights[:, 1:])


def test_heads_must_divide_the_width(name: str) -> None:
    build = TOKEN_ATTENTION[name]
    for num_heads, message in ((5, r"num_heads \(5\) must divide embed_dim \(64\)"), (0, r"num_heads \(0\) must be")):
        with pytest.raises(ValueError, match=message):
            build(WIDTH, num_heads=num_heads)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qkv_bias": 1}, r"qkv_bias \(1\) must be True or False"),
        ({"qk_norm": "no"}, r"qk_norm \('no'\) must be True or False"),
        ({"attention_dropout": 1.0}, r"attention_dropout \(1.0\) must be a number from 0"),
        ({"projection_dropout": -0.5}, r"projection_dropout \(-0.5\) must be a number from 0"),
        ({"backend": "cuda"}, r"unknown backend 'cuda'"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(name: str, options: dict, message: str) -> None:
    if not takes(name, *options):
        pytest.skip("no such option")
    with pytest.raises(ValueError, match=message):
        create(name, **options)


@pytest.mark.parametrize(
    ("shape", "token_mask", "message"),
    [
        ((2, 5, WIDTH + 1), None, r"tokens has shape \(2, 5, 65\), but must be \(batch, tokens, 64\)"),
        ((5, WIDTH), None, r"tokens has shape \(5, 64\)"),
        ((2, 5, WIDTH), torch.ones(5, 2, dtype=torch.bool), r"the mask of tokens \(torch.bool, shape \(5, 2\)\)"),
        ((2, 5, WIDTH), torch.ones(2, 5), r"the mask of tokens \(torch.float32, shape \(2, 5\)\) must be boolean"),
    ],
    ids=["width", "axes", "mask shape", "mask dtype"],
)
def test_tokens_that_do_not_fit_are_refused(name: str, shape: tuple, token_mask: Tensor | None, message: str) -> None:
    attention = create(name)
    with pytest.raises(ValueError, match=message):
        attention(torch.zeros(shape), token_mask=token_mask, **context_of(attention, 2, torch.float32))


def test_gradients_are_right(name: str) -> None:
    attention = TOKEN_ATTENTION[name](32, num_heads=1).double()
    context = {key: value[..., :32] for key, value in context_of(attention, 1, torch.float64).items()}
    tokens = draw(1, 3, 32).requires_grad_()
    parameters = dict(attention.named_parameters())
    if "context_mask" in context:
        context["context_mask"] = torch.ones(1, 9, dtype=torch.bool)

    def call(tokens: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(attention, dict(zip(parameters, values, strict=True)), (tokens,), context)

    assert torch.autograd.gradcheck(call, (tokens, *parameters.values()), fast_mode=True)


def test_input_is_not_changed(name: str) -> None:
    tokens, token_mask = draw(2, 12, WIDTH, dtype=torch.float32), mask_of([12, 3], 12)
    before, mask_before = tokens.clone(), token_mask.clone()
    run(create(name), tokens, token_mask)
    assert torch.equal(tokens, before)
    assert torch.equal(token_mask, mask_before)


def test_state_dict_gives_the_same_module_again(name: str) -> None:
    attention, file = create(name), io.BytesIO()
    torch.save(attention.state_dict(), file)
    file.seek(0)
    torch.manual_seed(1)
    other = TOKEN_ATTENTION[name](WIDTH, num_heads=HEADS)
    tokens = draw(2, 12, WIDTH, dtype=torch.float32)
    assert not torch.equal(run(other, tokens), run(attention, tokens))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(run(other, tokens), run(attention, tokens))
    assert torch.equal(run(copy.deepcopy(attention), tokens), run(attention, tokens))


def test_compiles_without_a_break(name: str) -> None:
    attention = create(name).eval()
    tokens, token_mask = draw(2, 12, WIDTH, dtype=torch.float32), mask_of([12, 3], 12)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    expected = run(attention, tokens, token_mask)
    context = context_of(attention, 2, torch.float32)
    torch.testing.assert_close(compiled(tokens, token_mask=token_mask, **context), expected, rtol=1e-5, atol=1e-6)


def test_exports_and_the_exported_program_gives_the_same(name: str) -> None:
    attention = create(name).eval()
    tokens, token_mask = draw(2, 12, WIDTH, dtype=torch.float32), mask_of([12, 3], 12)
    inputs = {"tokens": tokens, "token_mask": token_mask, **context_of(attention, 2, torch.float32)}
    exported = torch.export.export(attention, (), inputs).module()
    torch.testing.assert_close(exported(**inputs), attention(**inputs), rtol=1e-5, atol=1e-6)


def test_a_rotation_turns_queries_and_keys_and_nothing_else(name: str) -> None:
    attention = create(name).double()
    if "rotation" not in inspect.signature(attention.forward).parameters:
        pytest.skip("takes no rotation")
    tokens, rotation = draw(2, 12, WIDTH), RotaryPositions2d(WIDTH // HEADS)((3, 4))
    still = Rotation(torch.ones_like(rotation.cosine), torch.zeros_like(rotation.sine))
    assert torch.equal(attention(tokens, rotation=still), attention(tokens))
    weights = attention.attention_weights(tokens, rotation=rotation)
    assert not torch.allclose(weights, attention.attention_weights(tokens))
    value = tokens @ attention.query_key_value.weight[-WIDTH:].T + attention.query_key_value.bias[-WIDTH:]
    mixed = (weights @ value.unflatten(-1, (HEADS, -1)).transpose(1, 2)).transpose(1, 2).flatten(2)
    expected = mixed @ attention.projection.weight.T + attention.projection.bias
    torch.testing.assert_close(attention(tokens, rotation=rotation), expected, rtol=1e-10, atol=1e-11)


class OverAnImage(nn.Module):
    """Tokens of an image of one row, for the count of MACs."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attend = attention

    def forward(self, images: Tensor) -> Tensor:
        tokens = images.flatten(2).mT
        more = {"context": tokens} if "context" in inspect.signature(self.attend.forward).parameters else {}
        return self.attend(tokens, **more)


def test_macs_are_those_of_the_products_whatever_computes_them(name: str) -> None:
    size = (WIDTH, 1, 300)
    macs = count_macs(OverAnImage(create(name)), size)
    projections = 300 * 4 * WIDTH * WIDTH
    assert projections < macs <= projections + 2 * 300 * 300 * WIDTH
    if takes(name, "backend"):
        backends = ("reference", "sdpa")
        counts = {count_macs(OverAnImage(create(name, backend=backend).train()), size) for backend in backends}
        assert counts == {macs}


def test_its_docstring_tells_how_its_cost_grows(name: str) -> None:
    """Four times the products for twice the tokens where it says so, and else twice."""
    cost = re.search(r"Cost:\n\s+Time ``O\((.*?)\)``, memory\s+``O\(", inspect.getdoc(TOKEN_ATTENTION[name]) or "")
    assert cost is not None, "the docstring must say: Cost: Time ``O(...)``, memory ``O(...)``"
    short, long = (
        count_macs(OverAnImage(create(name)), (WIDTH, 1, tokens)) - tokens * 4 * WIDTH * WIDTH
        for tokens in (2048, 4096)
    )
    is_quadratic = "tokens^2" in cost[1] or "tokens context_tokens" in cost[1]
    assert long / short == pytest.approx(4 if is_quadratic else 2, rel=0.01)
