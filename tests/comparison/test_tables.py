"""One definition of the columns in every form."""

import csv
import io

import pytest
from rich.console import Console

from zoo.comparison.summary import summarize
from zoo.comparison.tables import HEADER, format_csv, format_markdown, print_summary, row


@pytest.fixture
def summary(make_results):
    return summarize(make_results({"none": 0.8, "se": 0.81, "cbam": 0.9}))


def test_markdown_has_a_line_per_net_and_says_where_it_comes_from(summary):
    text = format_markdown(summary)
    lines = [line for line in text.splitlines() if line.startswith("| resnet20")]
    assert len(lines) == 3
    assert all(line.count("|") == len(HEADER) + 1 for line in lines)
    assert "9 runs of 5 epochs, seeds 0, 1, 2, 400 test images" in text
    assert "commit a1b2c3d4e5" in text
    assert summary.cells[2].comparison.verdict in text


def test_csv_has_plain_numbers_and_empty_fields(summary):
    plain, _, cbam = csv.DictReader(io.StringIO(format_csv(summary)))
    assert float(cbam["difference"]) == summary.cells[2].comparison.difference.mean
    assert plain["difference"] == plain["verdict"] == ""
    assert float(cbam["train_rate_ratio"]) == pytest.approx(0.8)


def test_the_terminal_shows_every_net_and_every_sentence_whole(summary):
    console = Console(file=io.StringIO(), width=100)
    print_summary(summary, console)
    printed = console.file.getvalue()
    for cell in summary.cells:
        assert cell.cell in printed
    assert summary.cells[1].comparison.verdict in printed.replace("\n", " ")


def test_a_cost_that_was_not_measured_is_a_dash_and_not_a_number(make_results):
    summary = summarize(make_results({"none": 0.8, "se": 0.81}, cost=False))
    assert row(summary.cells[1])[9:12] == ["-", "-", "-"]
    assert next(csv.DictReader(io.StringIO(format_csv(summary))))["train_rate_ratio"] == ""


def test_options_in_brackets_stay_and_a_net_without_its_plain_one_is_not_called_plain(make_results):
    summary = summarize(make_results({"cbam(pooling=[mean])": 0.8, "cbam(pooling=[max])": 0.81}))
    console = Console(file=io.StringIO(), width=200)
    print_summary(summary, console)
    printed = console.file.getvalue()
    assert "pooling=[mean]" in printed
    assert "pooling=[max]" in printed
    assert {row(cell)[-1] for cell in summary.cells} == {"no seed in common with a plain net"}
