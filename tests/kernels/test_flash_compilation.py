"""The Flash kernels, compiled for NVIDIA's devices without one: what they take of registers and shared memory."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel, make_backend
from triton.runtime.jit import create_function_from_signature

from zoo.kernels.flash_backward import row_state_launch
from zoo.kernels.flash_bias_gradient import bias_gradient_launch, empty_partial_sums
from zoo.kernels.flash_call import FlashCall, SavedRows, key_state_launch
from zoo.kernels.flash_forward import forward_launch
from zoo.kernels.flash_key_gradient import key_gradient_launch
from zoo.kernels.flash_query_gradient import query_gradient_launch
from zoo.kernels.launch import Launch

SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
DISASSEMBLER = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
KERNELS = ("forward", "query gradient", "key gradient")


def launches(head_dim: int, dtype: torch.dtype, **options: Any) -> dict[str, Launch]:
    """Return every launch of a call on views of a fused projection; tensors without storage will do."""
    fused = torch.empty(2, 197, 3, 4, head_dim, dtype=dtype, device="meta").permute(2, 0, 3, 1, 4)
    plain = {"mask": None, "bias": None, "seed": None, "dropout_p": 0.0, "reach_before": None, "reach_after": None}
    call = FlashCall(*fused, scale=0.125, offset=0, **{**plain, **options})
    rows = torch.empty(2, 4, 197, device="meta")
    state = rows if call.is_guarded else None
    end = torch.empty(2, 4, dtype=torch.int32, device="meta") if call.mask_of_keys is not None else None
    saved = SavedRows(state, end, fused[0], rows, rows)
    made = {
        "forward": forward_launch(call, state, end, fused[0], rows),
        "row state": row_state_launch(fused[0], fused[0], rows, rows, rows),
        "query gradient": query_gradient_launch(call, saved, fused[0]),
        "key gradient": key_gradient_launch(call, saved, fused[1], fused[2]),
    }
    if state is not None:
        made["key state"] = key_state_launch(call, state, end)
    if call.bias is not None:
        made["bias gradient"] = bias_gradient_launch(call, saved, empty_partial_sums(call))
    return made


def compile_for(capability: int, launch: Launch) -> CompiledKernel:
    """Compile as Triton does when a kernel is launched: signature and alignments come from the arguments."""
    target = GPUTarget("cuda", capability, 32)
    backend, kernel = make_backend(target), launch.kernel
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    arguments, specialization, options = bind(**launch.arguments)
    packed = kernel._pack_args(backend, options, arguments, specialization, options)
    return triton.compile(ASTSource(kernel, *packed[1:]), target=target, options=packed[0].__dict__)


def stack_bytes(compiled: CompiledKernel, folder: Path) -> int:
    """Return the local memory per thread: registers that are spilled lie there."""
    binary = folder / "kernel.cubin"
    binary.write_bytes(compiled.asm["cubin"])
    usage = subprocess.run([DISASSEMBLER, "-res-usage", binary], capture_output=True, text=True, check=True).stdout
    found = re.search(r"STACK:(\d+).* LOCAL:(\d+)", usage)
    assert found is not None, usage
    return int(found[1]) + int(found[2])


@pytest.mark.parametrize("capability", SHARED_MEMORY)
@pytest.mark.parametrize("head_dim", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_nothing_is_spilled_and_shared_memory_suffices(
    capability: int, head_dim: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    made = launches(head_dim, dtype)
    for name in KERNELS:
        compiled = compile_for(capability, made[name])
        assert stack_bytes(compiled, tmp_path) == 0, name
        assert compiled.metadata.shared <= SHARED_MEMORY[capability], name


def test_every_option_compiles_and_fits_shared_memory() -> None:
    """Bias, mask of keys, window, dropout and a padded width at once, in all kernels."""
    pairs = torch.empty(1, 4, 197, 197, dtype=torch.float16, device="meta")
    made = launches(
        48,
        torch.float16,
        bias=pairs,
        mask=torch.empty(2, 1, 1, 197, dtype=torch.bool, device="meta"),
        seed=torch.empty(1, dtype=torch.int64, device="meta"),
        dropout_p=0.1,
        reach_before=7,
        reach_after=7,
    )
    assert len(made) == 6
    for launch in made.values():
        assert compile_for(90, launch).metadata.shared <= SHARED_MEMORY[90]


def test_float32_is_multiplied_as_such_and_half_precision_by_matrix_units() -> None:
    single = compile_for(90, launches(32, torch.float32)["forward"]).asm["ptx"]
    assert "tf32" not in single
    assert "wgmma" in compile_for(90, launches(64, torch.float16)["forward"]).asm["ptx"]
