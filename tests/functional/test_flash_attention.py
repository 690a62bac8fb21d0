"""Where the Flash kernels run, what is said where they cannot, and their cost; tests/kernels holds their results."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from zoo.evaluation.complexity import count_macs
from zoo.functional import attention
from zoo.functional.attention import _choose_backend
from zoo.functional.attention_inputs import AttentionInputs, prepare_inputs
from zoo.functional.flash_attention import why_flash_cannot_run

HALF = torch.float16


def inputs_of(tokens: torch.Tensor) -> AttentionInputs:
    return prepare_inputs(
        tokens, tokens, tokens, mask=None, bias=None, is_causal=False, window=None, alignment="last", scale=None
    )


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (torch.zeros(1, 1, 2, 8), "it takes a CUDA device, and the tensors are on cpu"),
        (torch.zeros(1, 1, 2, 8, dtype=torch.float64), "it computes in float16, bfloat16 and float32, and the tensors"),
        (torch.zeros(1, 1, 2, 257, device="meta"), "it takes a head_dim up to 256, and this one is 257"),
    ],
    ids=["cpu", "float64", "head_dim"],
)
def test_an_explicit_backend_that_cannot_run_says_why(tokens: torch.Tensor, reason: str, monkeypatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=rf"backend 'flash' cannot run: {reason}.*; use 'sdpa', 'reference' or 'auto'"):
        attention(tokens, tokens, tokens, backend="flash")


@pytest.mark.parametrize(
    ("capability", "reason"),
    [((8, 0), None), ((9, 0), None), ((7, 5), "capability 8.0 or newer, and this one has 7.5")],
)
def test_devices_before_ampere_are_refused(capability: tuple[int, int], reason: str | None, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    tokens = _OnCuda(HALF)
    found = why_flash_cannot_run(tokens, tokens)
    assert (found is None) if reason is None else (reason in found)


class _OnCuda:
    """What the choice looks at of a tensor on a CUDA device."""

    is_cuda, shape, device = True, (1, 1, 2, 64), torch.device("cuda", 0)

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


@pytest.mark.parametrize(
    ("dtype", "capability", "expected"),
    [
        (HALF, (9, 0), "flash"),
        (torch.bfloat16, (8, 6), "flash"),
        (HALF, (7, 0), "sdpa"),
        (torch.float32, (9, 0), "sdpa"),
    ],
    ids=str,
)
def test_auto_takes_flash_for_half_precision_on_cuda(dtype, capability, expected, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    tokens = _OnCuda(dtype)
    assert _choose_backend("auto", AttentionInputs(tokens, tokens, tokens, None, None, 1.0)) == expected


def test_auto_takes_sdpa_on_a_cpu_even_under_the_interpreter(monkeypatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    inputs = inputs_of(torch.zeros(1, 1, 2, 8))
    assert _choose_backend("auto", inputs) == "sdpa"
    assert _choose_backend("flash", inputs) == "flash"


class _Attend(nn.Module):
    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = images.reshape(1, 2, 197, 64)
        return attention(tokens, tokens, tokens, backend=self.backend)


def test_macs_are_those_of_every_other_backend() -> None:
    counts = {backend: count_macs(_Attend(backend), (2, 197, 64)) for backend in ("flash", "sdpa", "reference")}
    assert counts == dict.fromkeys(counts, 19_870_208 // 2)


def test_shapes_and_strides_are_known_without_running() -> None:
    query, key, value = (
        torch.empty(2, 3, tokens, width, device="meta", dtype=HALF) for tokens, width in ((5, 8), (7, 8), (7, 16))
    )
    bias = torch.empty(1, 3, 1, 7, device="meta", requires_grad=True)
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
    output, log_sum_exp = attention(*leaves, bias=bias, backend="flash", return_log_sum_exp=True)
    assert output.transpose(1, 2).is_contiguous()
    assert (output.shape, output.dtype) == ((2, 3, 5, 16), HALF)
    assert (log_sum_exp.shape, log_sum_exp.dtype) == ((2, 3, 5), torch.float32)
    gradients = torch.autograd.grad(output.sum(), [*leaves, bias])
    assert [gradient.shape for gradient in gradients] == [leaf.shape for leaf in (*leaves, bias)]


def test_triton_is_imported_only_when_a_kernel_runs() -> None:
    code = "import sys, zoo.functional, zoo.evaluation.complexity; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
