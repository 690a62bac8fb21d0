"""Freed memory stays in the process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from zoo.training.memory import keep_freed_memory

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.zeros(16, 2**20)  # 64 MiB: more than glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

handed_back = page_faults()
assert keep_freed_memory()
page_faults()  # the heap grows to its full size
print(handed_back, page_faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library is told on Linux only")
def test_a_tensor_as_large_as_one_just_freed_costs_no_new_pages():
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    handed_back, kept = map(int, answer.stdout.split())
    assert handed_back >= 20  # even if a page were 2 MiB or more
    assert kept < handed_back / 10
