"""The Flash benchmark without a device: its cases, its counts, its verdicts, and that wrong results stop it."""

import csv
import itertools

import pytest
import torch

from benchmarks import flash_attention as benchmark
from benchmarks.flash_attention import OURS, PASSES, VIT_TOKENS, Case


@pytest.fixture
def pretend_device(monkeypatch):
    """A CPU in place of the device: sdpa's CPU path for everybody, and a clock that gives every call its turn."""
    ticks = itertools.count(1)
    monkeypatch.setattr(benchmark, "why_no_device", lambda: None)
    monkeypatch.setattr(benchmark, "find_errors", lambda *_: [])
    monkeypatch.setattr(benchmark, "_ours", torch.nn.functional.scaled_dot_product_attention)
    monkeypatch.setattr(benchmark, "time_ms", lambda call: (call(), float(next(ticks)))[1])
    monkeypatch.setattr(benchmark, "peak_mib", lambda call: 1.0)
    monkeypatch.setattr(benchmark, "measure_matrix_rate", lambda *_: 100.0)
    monkeypatch.setattr(benchmark, "TOTAL_TOKENS", 64)
    monkeypatch.setattr(benchmark, "WIDTH", 128)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "pretended")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


def test_it_refuses_without_a_device(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a CUDA device; there is none here, so nothing was measured"):
        benchmark.main(["--output", str(tmp_path / "rows.csv")])
    assert not any(tmp_path.iterdir())


def test_no_speed_is_measured_while_a_result_is_wrong(pretend_device, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmark, "find_errors", lambda *_: ["q is off"])
    monkeypatch.setattr(benchmark, "time_ms", lambda call: pytest.fail("measured"))
    monkeypatch.setattr(benchmark, "measure_matrix_rate", lambda *_: pytest.fail("measured"))
    with pytest.raises(SystemExit, match="results are wrong, so no speed was measured:\nq is off"):
        benchmark.main(["--output", str(tmp_path / "rows.csv")])
    assert not any(tmp_path.iterdir())


def test_the_check_finds_a_wrong_gradient(monkeypatch):
    """The reference in half precision passes for ours; the same with a scale that is off by a hundredth does not."""
    real = benchmark.attention

    def pretend(*tensors, backend, **options):
        return real(*tensors, backend="reference" if backend == "flash" else backend, **options)

    monkeypatch.setattr(benchmark, "attention", pretend)
    assert benchmark.find_errors("cpu", ["bfloat16"], [32]) == []

    def wrong(*tensors, backend, **options):
        scale = {"scale": 1.05 * 32**-0.5} if backend == "flash" else {}
        return pretend(*tensors, backend=backend, **options, **scale)

    monkeypatch.setattr(benchmark, "attention", wrong)
    assert len(benchmark.find_errors("cpu", ["bfloat16"], [32])) >= 5


def test_cases_cover_what_is_asked_and_begin_where_the_project_aims():
    cases = benchmark.list_cases(list(benchmark.DTYPES), benchmark.HEAD_DIMS, benchmark.TOKENS)
    assert len(cases) == len(set(cases)) == 2 * 3 * 9 + 5
    assert {case.tokens for case in cases} >= {64, 197, 257, 577, 1025, 16384}
    assert all(case.head_dim == 64 and case.tokens in VIT_TOKENS for case in cases[:15])
    assert sum(case.has_bias for case in cases) == 5


def test_operations_are_counted_by_hand():
    case = Case("float16", 64, 1024)
    assert (case.batch, case.heads) == (16, 16)
    assert case.flops(PASSES[0]) == 4 * 16 * 16 * 1024 * 1024 * 64
    assert case.flops(PASSES[1]) == 3.5 * case.flops(PASSES[0])


def test_a_run_appends_rows_with_verdicts_and_draws_them(pretend_device, tmp_path, capsys):
    rows_path, picture = tmp_path / "rows.csv", tmp_path / "flash.png"
    arguments = ["--dtypes", "float16", "--head_dims", "64", "--tokens", "64", "--output", str(rows_path)]
    benchmark.main([*arguments, "--picture", str(picture)], device="cpu")
    with rows_path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["implementation"], row["bias"]) for row in rows} >= {
        (OURS, "False"),
        (OURS, "True"),
        ("plain", "True"),
    }
    for row in rows:
        case = Case(row["dtype"], int(row["head_dim"]), int(row["tokens"]), row["bias"] == "True")
        rate = case.flops(row["passes"]) / float(row["median_ms"]) / 1e9
        assert float(row["tflops"]) == pytest.approx(rate, rel=1e-4)
        assert float(row["matrix_rate_share"]) == pytest.approx(rate / 100, rel=1e-3)
        assert row["device"] == "pretended"
    judged = [row for row in rows if row["reached"]]
    assert judged
    assert all(row["implementation"] == OURS for row in judged)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_ratios_are_to_the_best_path_and_are_held_to_the_aim():
    def row(name, milliseconds, **changes):
        same = {"passes": PASSES[1], "dtype": "float16", "head_dim": 64, "tokens": 197, "bias": False}
        return {**same, "implementation": name, "median_ms": str(milliseconds), **changes}

    rows = [row(OURS, 2.0), row("sdpa flash", 1.9), row("sdpa cudnn", 3.0), row("plain", 0.1)]
    (judged, *others) = benchmark.with_verdicts(rows)
    assert (judged["of_best_sdpa"], judged["target"], judged["reached"]) == ("0.95", "at least 0.9", "yes")
    assert all(other["reached"] == "" for other in others)
    (biased, _) = benchmark.with_verdicts([row(OURS, 2.0, bias=True), row("sdpa efficient", 2.8, bias=True)])
    assert (biased["target"], biased["reached"]) == ("at least 1.5", "no")
