"""The Flash kernels, run by Triton's interpreter and held against the formula in float64.

Run by test_flash_kernels.py in a process of its own: the interpreter has to be chosen before Triton is imported.
The tiles are of 16 queries by 32 keys, so that small inputs have many, and all buffers start as NaN.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from zoo.functional import attention, attention_weights, causal_mask, padding_mask, sliding_window_mask
from zoo.functional.flash_attention import FLASH_OPERATOR
from zoo.kernels import flash_bias_gradient, flash_forward, flash_key_gradient, flash_query_gradient
from zoo.kernels.flash_call import operand
from zoo.kernels.flash_pairs import matrix_of, reach
from zoo.kernels.flash_tiles import Tile

NAN, INF = math.nan, math.inf
HALVES = [torch.float16, torch.bfloat16]
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
USERS_OF_TILES = {
    "forward_tile": flash_forward,
    "query_gradient_tile": flash_query_gradient,
    "key_gradient_tile": flash_key_gradient,
    "bias_gradient_tile": flash_bias_gradient,
}


@pytest.fixture(autouse=True, scope="module")
def _small_tiles() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, module in USERS_OF_TILES.items():
            patch.setattr(module, name, lambda *_: Tile(16, 32, 1, 1))
        yield


@pytest.fixture(autouse=True, scope="module")
def _buffers_start_as_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.zeros(3).new_empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def draw_inputs(
    query_tokens: int,
    key_tokens: int,
    *,
    batch: int = 1,
    heads: int = 1,
    head_dim: int = 8,
    value_dim: int = 0,
    **how: Any,
) -> list[Tensor]:
    shapes = ((query_tokens, head_dim), (key_tokens, head_dim), (key_tokens, value_dim or head_dim))
    return [draw(batch, heads, *shape, seed=seed, **how).requires_grad_() for seed, shape in enumerate(shapes)]


def visible_pairs(query_tokens: int, key_tokens: int, options: dict[str, Any]) -> Tensor:
    mask = options.get("mask")
    visible = torch.ones(1, 1, query_tokens, key_tokens, dtype=torch.bool) if mask is None else mask
    alignment = options.get("alignment", "last")
    if options.get("is_causal"):
        visible = visible & causal_mask(query_tokens, key_tokens, alignment=alignment)
    if options.get("window") is not None:
        visible = visible & sliding_window_mask(query_tokens, key_tokens, window=options["window"], alignment=alignment)
    return visible


def formula(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, kept: Tensor | float, **options: Any
) -> Tensor:
    """Attention as it is written, in the dtype of its inputs; ``kept`` holds what dropout multiplies weights by."""
    scale = options.get("scale")
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    hidden = ~visible_pairs(query.shape[2], key.shape[2], options) | (scores == -INF)
    blind = hidden.all(-1, keepdim=True)
    weights = scores.masked_fill(hidden, -INF).masked_fill(blind, 0).softmax(-1).masked_fill(hidden, 0)
    return (weights * kept) @ value


def run(
    function: Callable[..., Tensor], inputs: list[Tensor], bias: Tensor | None, to: torch.dtype, send: Tensor
) -> list[Tensor]:
    """Return output and gradients of all inputs, in float64, for the upstream gradient ``send``."""
    leaves = [tensor.detach().to(to).requires_grad_() for tensor in inputs]
    moved = None if bias is None else bias.detach().to(to).requires_grad_()
    output = function(*leaves, moved)
    wanted = leaves if moved is None else [*leaves, moved]
    gradients = torch.autograd.grad(output, wanted, send.to(to), allow_unused=True)
    return [output.detach().double(), *(gradient.double() for gradient in gradients)]


def assert_close_as_the_formula(
    inputs: list[Tensor], bias: Tensor | None, *, floor: float = 1.0, **options: Any
) -> None:
    """Output error at most 2x, gradient error at most 3x what the formula loses, beside ``floor`` roundings."""
    dtype, dropout_p = inputs[0].dtype, options.get("dropout_p", 0.0)
    query, key, value = inputs
    kept: Tensor | float = 1.0
    if dropout_p:
        eye = torch.eye(key.shape[2], dtype=dtype).expand(*key.shape[:2], -1, -1)
        torch.manual_seed(0)
        dropped = attention(query.detach(), key.detach(), eye, bias=bias, backend="flash", **options)
        kept = (dropped != 0).double() / (1 - dropout_p)
    send = draw(*query.shape[:3], value.shape[3], seed=9, dtype=dtype)
    plain = {name: option for name, option in options.items() if name != "dropout_p"}
    exact = run(lambda *x: formula(*x, kept, **plain), inputs, bias, torch.float64, send)
    kept = kept.to(dtype) if isinstance(kept, Tensor) else kept
    lossy = run(lambda *x: formula(*x, kept, **plain), inputs, bias, dtype, send)
    torch.manual_seed(0)
    ours = run(lambda q, k, v, b: attention(q, k, v, bias=b, backend="flash", **options), inputs, bias, dtype, send)
    size = max(true.norm() for true in exact)  # where one key is seen, gradients of scores are 0 but for roundings
    for name, mine, theirs, true in zip("oqkvb", ours, lossy, exact, strict=False):
        allowed = (2 if name == "o" else 3) * (theirs - true).norm() + floor * torch.finfo(dtype).eps * size
        assert (mine - true).norm() <= allowed + 1e-7, (name, (mine - true).norm(), allowed)


@st.composite
def calls(sample: Callable[..., Any]) -> tuple[list[Tensor], Tensor | None, dict[str, Any]]:
    """Any inputs in any layout, with any options."""
    pick = lambda *choices: sample(st.sampled_from(choices))  # noqa: E731
    batch, heads, dtype = pick(1, 2), pick(1, 2), pick(torch.float32, *HALVES)
    query_tokens, key_tokens = pick(1, 5, 16, 17, 33, 40), pick(1, 7, 32, 33, 40)
    head_dim, value_dim = pick(8, 16, 24), pick(8, 24)
    inputs = draw_inputs(
        query_tokens, key_tokens, batch=batch, heads=heads, head_dim=head_dim, value_dim=value_dim, dtype=dtype
    )
    full = (batch, heads, query_tokens, key_tokens)
    options: dict[str, Any] = {"scale": pick(None, 0.3, -0.2), "dropout_p": pick(0.0, 0.0, 0.4)}
    options |= pick({}, {"is_causal": True}, {"window": 3}, {"window": 0}, {"is_causal": True, "window": 12})
    if len(options) > 2:
        options["alignment"] = pick("last", "first")
    shape = [pick(1, size) for size in full]
    kind = pick("no mask", "no mask", "pairs", "keys")
    if kind != "no mask":
        options["mask"] = draw(*shape[:2], shape[2] if kind == "pairs" else 1, key_tokens, seed=3) > -0.5
    bias = None
    if pick(True, False):
        bias = draw(*(pick(1, size) for size in full), seed=4, dtype=pick(dtype, torch.float32))
        bias = bias.masked_fill(draw(*bias.shape, seed=5) > 1.5, -INF)
    return inputs, bias, options


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(call=calls())
def test_every_option_and_their_combinations_with_all_gradients(call: tuple) -> None:
    inputs, bias, options = call
    assert_close_as_the_formula(inputs, bias, floor=4.0, **options)


@each_dtype
@pytest.mark.parametrize("kind", ["plain", "keys", "causal", "window", "bias"])
def test_loses_no_more_than_the_plain_formula_in_its_dtype(dtype: torch.dtype, kind: str) -> None:
    inputs = draw_inputs(40, 40, head_dim=32, dtype=dtype)
    options = {
        "keys": {"mask": padding_mask(torch.tensor([33]), 40)},
        "causal": {"is_causal": True},
        "window": {"window": 4},
    }
    bias = draw(1, 1, 40, 40, seed=5, dtype=dtype) if kind == "bias" else None
    assert_close_as_the_formula(inputs, bias, floor=0.0, **options.get(kind, {}))


@pytest.mark.parametrize(
    ("query_tokens", "key_tokens"), [(1, 1), (2, 1), (1, 20), (17, 65), (65, 17), (15, 31), (65, 65)], ids=str
)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": 5, "alignment": "first"}], ids=str)
def test_any_lengths(query_tokens: int, key_tokens: int, options: dict) -> None:
    assert_close_as_the_formula(draw_inputs(query_tokens, key_tokens), None, floor=4.0, **options)


def test_the_tiles_that_are_shipped_at_the_lengths_of_vision_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    from zoo.kernels import flash_tiles

    for name, module in USERS_OF_TILES.items():
        monkeypatch.setattr(module, name, getattr(flash_tiles, name))
    inputs = draw_inputs(197, 197, head_dim=64, dtype=torch.float16)
    assert_close_as_the_formula(inputs, draw(1, 1, 197, 197, seed=5, dtype=torch.float16))
    assert_close_as_the_formula(draw_inputs(65, 257, head_dim=48, dtype=torch.bfloat16), None, window=70)
    assert_close_as_the_formula(draw_inputs(65, 65, dtype=torch.float32), None)
    assert_close_as_the_formula(draw_inputs(3, 1025), None, is_causal=True)
    large = [3 * tensor.detach() for tensor in draw_inputs(130, 130, heads=2, head_dim=64, dtype=torch.float32)]
    assert_close_as_the_formula(large, None, floor=0.0)  # weights made anew from scores of 40 add up to 1


@pytest.mark.parametrize("head_dim", [1, 8, 31, 48, 63, 72, 80, 96, 128, 192, 256])
def test_every_column_of_every_head_dim_counts_and_scale_is_of_the_true_width(head_dim: int) -> None:
    query, key = torch.zeros(1, 1, 1, head_dim), torch.zeros(1, 1, 2, head_dim)
    query[..., -1], key[..., 1, -1] = 1.0, math.sqrt(head_dim) * math.log(3)
    value = torch.zeros(1, 1, 2, head_dim)
    value[..., 1, -1] = 1.0
    inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
    output = attention(*inputs, backend="flash")
    assert output[..., -1].item() == pytest.approx(0.75, rel=1e-5)
    of_query, of_key, of_value = torch.autograd.grad(output[..., -1].sum(), inputs)
    assert of_query[..., -1].item() == pytest.approx(0.1875 * math.log(3), rel=1e-5)
    assert of_key[0, 0, :, -1].tolist() == pytest.approx([-0.1875 / head_dim**0.5, 0.1875 / head_dim**0.5], rel=1e-5)
    assert of_value[0, 0, :, -1].tolist() == pytest.approx([0.25, 0.75], rel=1e-5)


@each_dtype
def test_low_scores_leave_no_room_for_padding(dtype: torch.dtype) -> None:
    query, key = torch.full((1, 1, 17, 4), 5.0, dtype=dtype), torch.full((1, 1, 17, 4), -5.0, dtype=dtype)
    assert attention(query, key, torch.ones_like(key), backend="flash").eq(1).all()
    assert attention(query, key, torch.ones_like(key), backend="flash", window=2).eq(1).all()


@each_dtype
@pytest.mark.parametrize("how", ["mask", "bias"])
def test_a_row_with_nothing_to_look_at_is_zero_with_zero_gradients(dtype: torch.dtype, how: str) -> None:
    inputs = draw_inputs(20, 20, dtype=dtype)
    visible = torch.ones(1, 1, 20, 20, dtype=torch.bool)
    visible[:, :, 2] = False
    bias = torch.zeros(1, 1, 20, 20).masked_fill(~visible, -INF).requires_grad_()
    hidden = {"mask": visible} if how == "mask" else {"bias": bias}
    output = attention(*inputs, backend="flash", **hidden)
    gradients = torch.autograd.grad(output.sum(), [*inputs, bias], allow_unused=True)
    rest = [inputs[0][:, :, [0, 1, *range(3, 20)]], *inputs[1:]]
    expected = torch.autograd.grad(attention(*rest, backend="reference").sum(), inputs)
    assert output[:, :, 2].eq(0).all()
    assert gradients[0][:, :, 2].eq(0).all()
    assert how == "mask" or gradients[3][:, :, 2].eq(0).all()
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    for mine, theirs in zip(gradients, expected, strict=False):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("garbage", [NAN, 1e10])
@pytest.mark.parametrize("kind", ["keys", "causal", "window", "pairs", "bias"])
def test_what_hidden_entries_hold_reaches_no_output_and_no_gradient(garbage: float, kind: str) -> None:
    """Query, key or value at position 3 holds garbage; the loss is over queries that may not look there."""
    options = {
        "keys": {"mask": padding_mask(torch.tensor([3]), 20)},
        "causal": {"is_causal": True},
        "window": {"window": 1},
        "pairs": {"mask": causal_mask(20)},
        "bias": {"bias": torch.zeros(1, 1, 20, 20).masked_fill(~causal_mask(20), -INF)},
    }[kind]
    kept = [0, 1, 17] if kind == "window" else [0, 1, 2]

    def results(inputs: list[Tensor]) -> list[Tensor]:
        output = attention(*inputs, backend="flash", **options)[:, :, kept]
        return [output, *torch.autograd.grad(output.square().sum(), inputs)]

    inputs = draw_inputs(20, 20)
    clean = results(inputs)
    for where in range(3):
        dirty = [tensor.detach().clone().requires_grad_() for tensor in inputs]
        with torch.no_grad():
            dirty[where][:, :, 3] = garbage
        for mine, theirs in zip(results(dirty), clean, strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize("garbage", [NAN, INF])
def test_a_query_that_may_look_at_nan_is_nan_sends_no_gradient_and_spoils_no_other(where: int, garbage: float) -> None:
    inputs = draw_inputs(4, 4, heads=2)
    with torch.no_grad():
        inputs[where][0, 1, 2, 5] = garbage
    output = attention(*inputs, backend="flash", is_causal=True)
    spoilt = [2] if where == 0 else [2, 3]
    assert output.isnan().all(-1).nonzero().tolist() == [[0, 1, row] for row in spoilt]
    assert output.isnan().any(-1).sum() == len(spoilt)
    for gradient in torch.autograd.grad(output, inputs, torch.ones_like(output)):
        assert gradient.isfinite().all()


def test_a_bias_that_is_not_finite_spoils_the_rows_that_see_it() -> None:
    inputs = draw_inputs(3, 3)
    bias = torch.zeros(1, 1, 3, 3)
    bias[0, 0, 0, 2], bias[0, 0, 1, 1] = NAN, INF
    output = attention(*inputs, bias=bias.requires_grad_(), is_causal=True, backend="flash")
    assert output.isnan().any(-1)[0, 0].tolist() == [False, True, False]
    for gradient in torch.autograd.grad(output, [*inputs, bias], torch.ones_like(output)):
        assert gradient.isfinite().all()


def test_tokens_in_a_storage_full_of_nan() -> None:
    """17 tokens of 11 columns inside a storage of 32 by 16: what lies around them is never read."""
    for dtype in (torch.float32, torch.bfloat16):
        storages = [torch.full((1, 1, 32, 16), NAN, dtype=dtype) for _ in range(3)]
        inputs = [tensor.detach() for tensor in draw_inputs(17, 17, head_dim=11, dtype=dtype)]
        for storage, tensor in zip(storages, inputs, strict=True):
            storage[:, :, :17, :11] = tensor
        views = [storage[:, :, :17, :11].requires_grad_() for storage in storages]
        plain = [tensor.requires_grad_() for tensor in inputs]
        output, expected = attention(*views, backend="flash"), attention(*plain, backend="flash")
        assert torch.equal(output, expected)
        mine, theirs = (torch.autograd.grad(o.square().sum(), x) for o, x in ((output, views), (expected, plain)))
        for one, other in zip(mine, theirs, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("kind", ["sum", "slice of a wider one", "merged heads", "expanded"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=str)
def test_upstream_gradients_of_any_strides(kind: str, options: dict) -> None:
    inputs = draw_inputs(5, 5, batch=2, heads=2)
    losses = {
        "sum": lambda output: output.sum(),
        "slice of a wider one": lambda output: (torch.cat([output, output.detach()], 1) * draw(2, 4, 5, 8)).sum(),
        "merged heads": lambda output: (output.transpose(1, 2).reshape(2, 5, 16) * draw(2, 5, 16, seed=4)).sum(),
        "expanded": lambda output: (output.expand(3, 2, 2, 5, 8) * draw(3, 1, 1, 5, 1)).sum(),
    }
    mine, theirs = (
        torch.autograd.grad(losses[kind](attention(*inputs, backend=backend, **options)), inputs)
        for backend in ("flash", "reference")
    )
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_views_of_one_projection_and_mixed_layouts() -> None:
    fused = draw(2, 5, 3 * 2 * 8).requires_grad_()
    query, key, value = fused.unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    copies = [tensor.detach().contiguous().requires_grad_() for tensor in (query, key, value)]
    output, expected = (attention(*tensors, backend="flash") for tensors in ((query, key, value), copies))
    assert query.stride() == (240, 8, 48, 1)
    assert torch.equal(output, expected)
    (gradient,) = torch.autograd.grad(output.square().sum(), [fused])
    parts = torch.autograd.grad(expected.square().sum(), copies)
    assert torch.equal(gradient, torch.stack(parts).permute(1, 3, 0, 2, 4).flatten(2))
    assert output.transpose(1, 2).reshape(2, 5, 16).data_ptr() == output.data_ptr()  # joining heads copies nothing

    shared = draw(2, 1, 5, 8).expand(2, 2, 5, 8)
    columns = draw(2, 2, 8, 5, seed=1).mT
    pairs = {"mask": draw(2, 5, 1, 5).transpose(1, 2).transpose(0, 3)[:1].expand(1, 1, 5, 2)[..., :1] > 0}
    for options in ({"is_causal": True}, pairs, {"bias": draw(5, 5, 2, 1).permute(3, 2, 1, 0)}):
        mixed = attention(shared, query.detach(), columns, backend="flash", **options)
        plain = [tensor.contiguous() for tensor in (shared, query.detach(), columns)]
        tight = {name: pair.contiguous() if isinstance(pair, Tensor) else pair for name, pair in options.items()}
        assert torch.equal(mixed, attention(*plain, backend="flash", **tight))


@triton.jit
def _offset_kernel(tensor, batch, head, offset_ptr):
    matrix = matrix_of(tensor, tl.program_id(0).to(tl.int64) + batch, head)
    tl.store(offset_ptr, matrix.ptr.to(tl.int64) - tensor.ptr.to(tl.int64))


def test_offsets_have_64_bits() -> None:
    tensor = torch.zeros(1).as_strided((1, 1, 1, 1), (1, 1, 1, 1))
    huge = operand(tensor)._replace(batch_stride=2**30, head_stride=0)
    offset = torch.zeros(1, dtype=torch.int64)
    _offset_kernel[(1,)](huge, 3, 0, offset)
    assert offset.item() == 3 * 2**30 * 4


@triton.jit
def _reach_kernel(bounds_ptr, first, past, end, shift, backward, forward, BLOCK: tl.constexpr):
    start, inner_start, inner_stop, stop = reach(first, past, end, shift, backward, forward, BLOCK)
    tl.store(bounds_ptr, start)
    tl.store(bounds_ptr + 1, inner_start)
    tl.store(bounds_ptr + 2, inner_stop)
    tl.store(bounds_ptr + 3, stop)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    first=st.integers(0, 50),
    size=st.integers(1, 20),
    end=st.integers(0, 60),
    shift=st.integers(-40, 40),
    backward=st.none() | st.integers(0, 30),
    forward=st.none() | st.integers(0, 30),
)
def test_tiles_that_are_skipped_hold_no_visible_pair_and_inner_ones_no_hidden(
    first: int, size: int, end: int, shift: int, backward: int | None, forward: int | None
) -> None:
    bounds = torch.zeros(4, dtype=torch.int32)
    _reach_kernel[(1,)](bounds, first, first + size, end, shift, backward, forward, 8)
    start, inner_start, inner_stop, stop = bounds.tolist()
    positions = torch.arange(first, first + size)[:, None] + shift
    others = torch.arange(end)
    visible = torch.ones(size, end, dtype=torch.bool)
    visible &= others >= positions - (1000 if backward is None else backward)
    visible &= others <= positions + (1000 if forward is None else forward)
    seen = visible.any(0).nonzero().flatten().tolist()
    walked = [*range(start, inner_start), *range(inner_start, inner_stop), *range(inner_stop, stop)]
    assert set(seen) <= set(walked)
    assert len(walked) == len(set(walked))
    assert start % 8 == inner_start % 8 == inner_stop % 8 == 0
    assert inner_stop <= end or inner_start == inner_stop
    assert visible[:, inner_start:inner_stop].all()
    if seen:
        assert start > seen[0] - 8
        assert stop <= seen[-1] + 1


@each_dtype
def test_values_of_another_width_and_log_sum_exp(dtype: torch.dtype) -> None:
    query, key, value = draw_inputs(20, 33, heads=2, value_dim=19, dtype=dtype)
    mask = padding_mask(torch.tensor([7]), 33) & (torch.arange(20) != 4)[:, None]
    for options in ({}, {"mask": mask}, {"is_causal": True, "alignment": "first"}):
        output, log_sum_exp = attention(query, key, value, backend="flash", return_log_sum_exp=True, **options)
        _, expected = attention(
            *(tensor.double() for tensor in (query, key, value)),
            backend="reference",
            return_log_sum_exp=True,
            **options,
        )
        assert output.shape == (1, 2, 20, 19)
        assert log_sum_exp.dtype == torch.float32
        assert not log_sum_exp.requires_grad
        torch.testing.assert_close(log_sum_exp.double(), expected, rtol=1e-5, atol=1e-5)
        weights = attention_weights(query, key, log_sum_exp=log_sum_exp, heads=[1], **options)
        torch.testing.assert_close(weights, attention_weights(query, key, heads=[1], **options), rtol=1e-4, atol=1e-6)


def test_no_keys_and_no_queries() -> None:
    inputs = draw_inputs(3, 0, heads=2)
    output = attention(*inputs, backend="flash", is_causal=True)
    assert output.eq(0).all()
    assert torch.autograd.grad(output.sum(), inputs)[0].eq(0).all()
    inputs = draw_inputs(0, 3, heads=2)
    output = attention(*inputs, backend="flash", bias=draw(1, 1, 1, 3))
    assert output.shape == (1, 2, 0, 8)
    assert torch.autograd.grad(output.sum(), inputs)[1].eq(0).all()


def test_float32_is_computed_in_float32() -> None:
    for factor in (1.0, 8.0):
        inputs = [factor * tensor.detach() for tensor in draw_inputs(64, 64, head_dim=32)]
        send = draw(1, 1, 64, 32, seed=7)
        exact = run(lambda *x: formula(*x, 1.0, is_causal=True), inputs, None, torch.float64, send)
        ours = run(lambda *x: attention(*x[:3], is_causal=True, backend="flash"), inputs, None, torch.float32, send)
        for mine, true in zip(ours, exact, strict=True):
            assert (mine - true).norm() <= 1e-4 * true.norm()


def test_dropout_keeps_the_rate_asked_for_and_is_drawn_from_torchs_generator() -> None:
    query = torch.zeros(2, 2, 64, 8)
    key, eye = torch.zeros(2, 2, 128, 8), torch.eye(128).expand(2, 2, 128, 128)

    def run_with(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return attention(query, key, eye, dropout_p=0.1, backend="flash")

    weights = run_with(0)
    torch.testing.assert_close(weights.unique(), torch.tensor([0.0, 1 / 128 / 0.9]))
    kept = (weights != 0).double()
    assert kept.mean().item() == pytest.approx(0.9, abs=4 * (0.09 / weights.numel()) ** 0.5)
    for axis in range(4):  # no two samples, heads, queries or keys share their draws
        first, second = kept.select(axis, 0), kept.select(axis, 1)
        assert (first != second).double().mean().item() == pytest.approx(0.18, abs=0.12)
    assert torch.equal(weights, run_with(0))
    assert not torch.equal(weights, run_with(1))


def test_gradients_under_checkpointing_of_a_second_backward_and_of_a_second_run_are_the_same_bits() -> None:
    inputs = draw_inputs(20, 40, heads=2)
    bias = draw(1, 1, 20, 40).requires_grad_()
    options = {"mask": padding_mask(torch.tensor([33]), 40), "dropout_p": 0.4, "scale": 0.3, "backend": "flash"}
    wanted = [*inputs, bias]
    torch.manual_seed(3)
    output = attention(*inputs, bias=bias, **options)
    plain = torch.autograd.grad(output.sum(), wanted, retain_graph=True)
    again = torch.autograd.grad(output.sum(), wanted)
    torch.manual_seed(3)
    call = lambda *x: attention(*x[:3], bias=x[3], **options)  # noqa: E731
    output = torch.utils.checkpoint.checkpoint(call, *wanted, use_reentrant=False)
    torch.rand(5)
    checkpointed = torch.autograd.grad(output.sum(), wanted)
    for one, two, three in zip(plain, again, checkpointed, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_only_the_gradients_asked_for_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from zoo.kernels import flash_backward

    query, key, value = (tensor.detach() for tensor in draw_inputs(5, 5))
    bias = draw(1, 1, 5, 5).requires_grad_()
    for name in ("query_gradient_launch", "key_gradient_launch"):
        monkeypatch.setattr(flash_backward, name, lambda *_: pytest.fail("computed"))
    (of_bias,) = torch.autograd.grad(attention(query, key, value, bias=bias, backend="flash").sum(), [bias])
    assert of_bias.isfinite().all()


@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16], ids=str)
def test_queries_normalised_to_float32_under_autocast_train(autocast: torch.dtype) -> None:
    query, key, value = draw_inputs(5, 5)
    with torch.autocast("cpu", autocast):
        output = attention(query, key, value.to(autocast), bias=draw(1, 1, 1, 5), is_causal=True, backend="flash")
    assert output.dtype == autocast
    for gradient in torch.autograd.grad(output.float().square().sum(), [query, key, value]):
        assert gradient.dtype == torch.float32
        assert gradient.isfinite().all()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("kind", ["plain", "everything"])
def test_the_operator_keeps_torchs_rules(kind: str) -> None:
    query, key, value = draw_inputs(5, 7, heads=2)
    mask, bias, seed = None, None, None
    if kind == "everything":
        mask = padding_mask(torch.tensor([4]), 7)
        bias, seed = draw(1, 2, 1, 7).requires_grad_(), torch.tensor([5])
    reach_of = None if kind == "plain" else 3
    torch.library.opcheck(
        FLASH_OPERATOR,
        (query, key, value, mask, bias, seed, 0.3, 0.2 if seed is not None else 0.0, 2, reach_of, reach_of),
    )


def test_compiles_without_a_break_forward_and_backward() -> None:
    inputs = draw_inputs(20, 20, heads=2)
    bias = draw(1, 2, 20, 20).requires_grad_()

    def call(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        biased = attention(query, key, value, bias=bias, mask=mask, is_causal=True, backend="flash")
        return biased + attention(query, key, value, window=2, backend="flash")

    mask = padding_mask(torch.tensor([13]), 20)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    mine, theirs = compiled(*inputs, bias), call(*inputs, bias)
    torch.testing.assert_close(mine, theirs)
    for one, other in zip(
        torch.autograd.grad(mine.sum(), [*inputs, bias]),
        torch.autograd.grad(theirs.sum(), [*inputs, bias]),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
