"""The benchmarks of attention: their arithmetic, tiny runs of them, and the committed rows against their aims."""

import csv
import math
from pathlib import Path

import pytest
import torch

from benchmarks import attention_exactness, attention_scaling
from zoo.functional import attention


def test_the_exponent_is_the_slope_between_logarithms() -> None:
    lengths = [1024, 2048, 4096]
    assert attention_scaling.fitted_exponent(lengths, [3 * n**1.5 for n in lengths]) == pytest.approx(1.5)


def test_peak_memory_is_the_most_that_is_held_at_a_time() -> None:
    def step() -> None:
        first = torch.empty(1000, 256)
        second = torch.empty(500, 256)
        del first
        third = torch.empty(700, 256)
        del second, third

    assert attention_scaling.peak_memory_of(step, "cpu") == 1500 * 256 * 4


@pytest.mark.parametrize("kind", attention_scaling.KINDS)
def test_memory_grows_as_it_should(kind: str) -> None:
    """Scores held grow with the square of the tokens; everything else grows with the tokens."""
    steps = [
        attention_scaling.step_of(attention_scaling.KINDS[kind], "forward", tokens, "cpu") for tokens in (512, 1024)
    ]
    small, large = (attention_scaling.peak_memory_of(step, "cpu") for step in steps)
    exponent = math.log2(large / small)
    assert exponent > 1.7 if kind == "plain, all scores held" else exponent < 1.1


def test_a_run_of_some_kinds_leaves_the_rows_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_scaling, "LENGTHS", (64, 128))
    monkeypatch.setattr(attention_scaling, "_SECONDS_PER_MEASURE", 0.0)
    path, picture = tmp_path / "rows.csv", tmp_path / "picture.png"
    dates = iter(["2001", "2002", "2003"])
    monkeypatch.setattr(attention_scaling, "describe_run", lambda **settings: {"date": next(dates), **settings})
    for kinds in (["window", "linear"], ["window"]):
        attention_scaling.append_rows(path, attention_scaling.measure(kinds, 1, "cpu"))
    rows = attention_scaling.newest_rows(path)
    assert {(row["kind"], row["date"]) for row in rows} == {("window", "2002"), ("linear", "2001")}
    assert len(rows) == 2 * 2 * 2
    lengths, times = attention_scaling.series_of(rows, "window", "forward", "time_ms")
    assert lengths == [64, 128]
    assert all(time > 0 for time in times)
    attention_scaling.draw(rows, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_committed_rows_reach_their_aims() -> None:
    rows = attention_scaling.newest_rows()
    assert {row["kind"] for row in rows} == set(attention_scaling.KINDS)
    for name, kind in attention_scaling.KINDS.items():
        for which in attention_scaling.PASSES:
            lengths, times = attention_scaling.series_of(rows, name, which, "time_ms")
            assert lengths == [length for length in (1024, 2048, 4096, 8192, 16384) if length <= kind.longest]
            exponent = attention_scaling.fitted_exponent(lengths, times)
            assert exponent <= 1.15 if kind.target else 1.75 < exponent < 2.35, (name, which, exponent)


@pytest.mark.parametrize("option", attention_exactness.create_cases(30))
def test_the_formula_written_out_is_that_of_the_options(option: str) -> None:
    """In float64 the plain formula and attention agree, so that the errors are those of rounding alone."""
    case = attention_exactness.create_cases(30)[option]
    tensors = attention_exactness.draw(case, 30, torch.float64, "cpu")
    bias = tensors[3] if len(tensors) > 3 else None
    expected = attention(*tensors[:3], bias=bias, backend="reference", **case.options)
    torch.testing.assert_close(attention_exactness.plain(case, *tensors), expected)


def test_what_is_wrong_is_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_exactness, "DTYPES", {"float32": torch.float32})
    rows = attention_exactness.measure(["sdpa"], 30, "cpu")
    assert {row["reached"] for row in rows} == {"yes"}
    assert len(rows) == len(attention_exactness.create_cases(30))

    def wrong(query, key, value, *, scale=None, **options):
        return attention(
            query, key, value, scale=1e-6 + (query.shape[-1] ** -0.5 if scale is None else scale), **options
        )

    monkeypatch.setattr(attention_exactness, "attention", wrong)
    assert {row["reached"] for row in attention_exactness.measure(["sdpa"], 30, "cpu")} == {"no"}


def test_a_backend_that_cannot_run_is_left_out_or_says_why(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert attention_exactness.reason_against("sdpa", "cpu") is None
    assert "backend 'flash' cannot run: " in str(attention_exactness.reason_against("flash", "cpu"))
    monkeypatch.setattr("sys.argv", ["attention_exactness.py", "--backends", "flash"])
    with pytest.raises(SystemExit):
        attention_exactness.main()
    assert "backend 'flash' cannot run" in capsys.readouterr().err


def test_the_committed_rows_of_torchs_and_the_plain_formula_are_within_their_limits() -> None:
    with attention_exactness.RESULTS.open(newline="") as file:
        assert {row["backend"] for row in csv.DictReader(file)} >= {"reference", "sdpa", "flash"}
    rows = attention_exactness.newest_rows()
    assert [row for row in rows if row["reached"] == "no" and row["backend"] != "flash"] == []
