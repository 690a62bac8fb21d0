"""The page in a browser: its table sorts, and it needs nothing from a network."""

import re
import shutil
import subprocess

import pytest

from zoo.comparison.page import write_report
from zoo.comparison.summary import summarize

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture
def report(make_results, tmp_path):
    results = make_results({"none": 0.8, "se": 0.7, "<b>&cbam": 0.9})
    return write_report(results, summarize(results), tmp_path / "report")


def test_everything_is_in_one_file(report):
    text = report[0].read_text(encoding="utf-8")
    assert "http" not in re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text)
    assert re.findall(r'src="(?!data:)', text) == []
    assert len(re.findall(r'<img alt="[^"]+" src="data:image/png;base64,', text)) == 4
    assert "<b>&cbam" not in text
    assert "&lt;b&gt;&amp;cbam" in text
    assert {path.name for path in report} >= {"report.html", "summary.md", "summary.csv", "learning_curves.png"}
    assert all(path.is_file() for path in report)


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize(("fragment", "order"), [("", [0.8, 0.7, 0.9]), ("#sort=2", [0.9, 0.8, 0.7])])
def test_the_table_sorts_in_a_browser(report, tmp_path, fragment, order):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run(
        [*command, "--dump-dom", f"{report[0].as_uri()}{fragment}"], capture_output=True, text=True, timeout=120
    ).stdout
    body = shown[shown.index("<tbody>") : shown.index("</tbody>")]
    accuracies = [float(line.split('data-value="')[2].split('"')[0]) for line in body.split("<tr")[1:]]
    assert accuracies == pytest.approx(order, abs=0.08)
    assert ('aria-sort="descending"' in shown) == bool(fragment)
