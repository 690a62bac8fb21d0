"""The benchmark's arithmetic on made-up timings, and one tiny run of it."""

import csv
import itertools
import math

import pytest
import torch

from benchmarks import stacks, training
from benchmarks.measurements import (
    Figure,
    OtherPrograms,
    Target,
    append_rows,
    describe_run,
    interleave,
    ratios,
    to_rows,
)

COLUMNS = [
    "date", "commit", "dirty", "processor", "num_cores", "num_threads", "python", "torch", "torchvision", "lightning",
    "seed", "batch_size", "data", "precision", "rounds", "subject", "what", "unit", "median", "min", "max", "target",
    "reached",
]  # fmt: skip


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_round_calls_every_measure_once_and_every_other_round_backwards():
    calls = []
    measures = {name: (lambda name=name: calls.append(name) or float(len(calls))) for name in "ABC"}
    values = interleave(measures, rounds=3)
    assert "".join(calls) == "ABCCBAABC"
    assert values == {"A": (1.0, 6.0, 7.0), "B": (2.0, 5.0, 8.0), "C": (3.0, 4.0, 9.0)}
    with pytest.raises(ValueError, match="rounds"):
        interleave(measures, rounds=0)


def test_a_ratio_pairs_values_of_one_round_so_a_machine_that_slows_down_does_not_move_it():
    slowdown = (1.0, 3.0, 0.5)
    ours, usual = [200.0 / factor for factor in slowdown], [100.0 / factor for factor in slowdown]
    assert ratios(ours, usual) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="argument 2"):
        ratios([1.0, 2.0], [1.0])


def test_rows_hold_median_and_range_over_rounds_and_whether_the_target_is_reached():
    figures = [
        Figure("net", "ratio", "x", (2.0, 1.0, 9.0), Target(2.5), "bf16-mixed"),
        Figure("net", "ratio", "x", (2.0, 1.0, 9.0), Target(2.0, "at most")),
        Figure("net", "speed", "images/s", (5.0, 7.0)),
    ]
    rows = to_rows({"seed": 0}, figures)
    assert [(row["median"], row["min"], row["max"], row["rounds"]) for row in rows] == [
        ("2", "1", "9", 3), ("2", "1", "9", 3), ("6", "5", "7", 2),
    ]  # fmt: skip
    assert [(row["target"], row["reached"]) for row in rows] == [("at least 2.5", "no"), ("at most 2", "yes"), ("", "")]


def test_figures_of_a_net_divide_its_values_by_those_of_the_right_rival():
    plain, gated = training.Net("resnet20", "none"), training.Net("resnet20", "cbam")
    values = {
        (plain, training.STEP): (100.0, 50.0),
        (gated, training.END_TO_END): (60.0, 30.0),
        (gated, training.STEP): (75.0, 37.5),
        (gated, training.WITHOUT_TRAINER): (70.0, 35.0),
        (gated, training.USUAL_END_TO_END): (20.0, 10.0),
        (gated, training.USUAL_STEP): (25.0, 12.5),
        "matrix": (1e12, 1e12),
    }
    figures = {figure.what: figure for figure in training.net_figures(gated, values, (4.0, 6.0), "bf16-mixed", 10)}
    assert figures["end to end / usual stack"].values == (3.0, 3.0)
    assert figures["step alone / usual step"].values == (3.0, 3.0)
    assert figures["end to end / step alone"].values == (0.8, 0.8)
    assert figures["step alone / plain net's"].values == (0.75, 0.75)
    assert figures[training.PREPARATION].median == 5.0
    macs = training.count_macs(gated.create(10), (3, 32, 32))
    bound = figures["MACs x 6 at the matrix rate"].median
    assert bound == pytest.approx(1e12 / (6 * macs))
    assert figures["step alone, share of that bound"].values == pytest.approx((7500 / bound, 3750 / bound))
    targets = {what: figure.target.value for what, figure in figures.items() if figure.target is not None}
    assert targets == {
        "end to end / usual stack": 1.9, "step alone / plain net's": 0.62, training.PREPARATION: 8.0,
    }  # fmt: skip


def test_time_steps_leaves_the_first_steps_out_of_the_count_and_of_the_clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(stacks.time, "perf_counter", lambda: now[0])
    durations = iter([50.0, 50.0, 1.0, 3.0])

    def step(images, labels):
        now[0] += next(durations)

    assert stacks.time_steps(step, itertools.repeat((torch.zeros(8, 3, 1, 1), torch.zeros(8))), 2) == 16 / 4.0


def test_the_segment_clock_separates_steps_from_what_lies_between(monkeypatch):
    clock, now = stacks.SegmentClock(), [0.0]
    monkeypatch.setattr(stacks.time, "perf_counter", lambda: now[0])
    for batch_idx in range(stacks.WARMUP_STEPS + 3):
        now[0] += 1.0  # fetch and prepare
        clock.on_train_batch_start(None, None, None, batch_idx)
        now[0] += 4.0  # step
        clock.on_train_batch_end(None, None, None, None, batch_idx)
    assert clock.seconds == 15.0
    assert clock.seconds_between == 3.0


def test_appending_keeps_earlier_rows_and_refuses_other_columns(tmp_path):
    path = tmp_path / "results" / "rows.csv"
    append_rows(path, [{"what": "a", "median": 1}])
    append_rows(path, [{"what": "b", "median": 2}])
    assert [row["what"] for row in read(path)] == ["a", "b"]
    before = path.read_bytes()
    with pytest.raises(ValueError, match="columns what, median; expected what, unit"):
        append_rows(path, [{"what": "c", "unit": "s"}])
    assert path.read_bytes() == before


def test_other_programs_are_seen_and_we_are_not(monkeypatch):
    readings = iter([(10.0, 100.0, 1000.0), (14.0, 106.0, 1020.0)])
    monkeypatch.setattr(OtherPrograms, "_read", staticmethod(lambda: next(readings)))
    assert OtherPrograms().share() == pytest.approx(100 * (6 - 4) / 20)


def test_the_usual_stack_normalises_as_ours_does():
    data = stacks.SyntheticCIFAR(num_images=8, batch_size=4)
    train = data.read_splits()["train"]
    usual = stacks.PerImageDataset(train.images, train.labels)
    usual.transform.transforms = usual.transform.transforms[2:]  # without the random ones
    images = torch.stack([usual[index][0] for index in range(8)])
    torch.testing.assert_close(images, data.preprocessing.normalize(train.images.permute(0, 3, 1, 2)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_tiny_run_writes_a_row_for_every_figure(tmp_path, monkeypatch, capsys):
    small = stacks.SyntheticCIFAR(num_images=160, batch_size=4)
    import_seconds = training.import_seconds
    monkeypatch.setattr(training, "load_data", lambda batch_size: small)
    monkeypatch.setattr(training, "ATTENTIONS", ("none", "cbam"))
    monkeypatch.setattr(training, "MATRIX_SIZE", 64)
    monkeypatch.setattr(training, "import_seconds", lambda package: import_seconds("json"))
    path = tmp_path / "rows.csv"
    options = ["--models", "resnet20", "--rounds", "2", "--seconds", "0.1", "--batch_size", "4"]
    training.main([*options, "--output", str(path)])

    rows = read(path)
    assert list(rows[0]) == COLUMNS
    assert [row["subject"] for row in rows] == ["this machine"] * 5 + ["resnet20"] * 11 + ["resnet20 cbam"] * 12
    assert all(math.isfinite(float(row[column])) for row in rows for column in ("median", "min", "max"))
    assert all(float(row["min"]) <= float(row["median"]) <= float(row["max"]) for row in rows)
    assert {row["rounds"] for row in rows[1:4]} == {"2"}
    assert all(row["data"] == "synthetic" and row["batch_size"] == "4" for row in rows)
    assert {row["reached"] for row in rows if row["target"]} <= {"yes", "no"}
    speeds = {row["what"] for row in rows if row["subject"] == "resnet20 cbam" and row["unit"] == "images/s"}
    assert speeds >= {training.END_TO_END, training.STEP, training.USUAL_END_TO_END, training.USUAL_STEP}
    shown = capsys.readouterr().out
    assert "this machine" in shown
    assert "resnet20 cbam" in shown


def test_the_run_says_where_its_rows_come_from():
    run = describe_run(seed=3)
    assert run["seed"] == 3
    assert run["num_threads"] == torch.get_num_threads()
    assert run["torch"].startswith(torch.__version__.split("+")[0])
