"""What docs/explaining.md shows can be run."""

import re
from pathlib import Path

import numpy as np
from PIL import Image

from zoo.cli.main import create_parser

TEXT = (Path(__file__).parent.parent / "docs" / "explaining.md").read_text(encoding="utf-8")


def test_command_lines_shown_have_options_that_exist():
    _, by_name = create_parser()
    blocks = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    lines = [line.split("#")[0].split() for block in blocks for line in block.splitlines()]
    assert len(lines) >= 4
    for _, command, *words in lines:
        by_name[command].parse_args(words)


def test_the_example_runs_and_writes_what_it_says(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    # The measures of trust have tests of their own and take most of the time.
    block = block.replace("class_names=card.class_names", "class_names=card.class_names, trust=False")
    monkeypatch.chdir(tmp_path)
    shown = {}
    exec(compile(block, "docs/explaining.md", "exec"), shown)
    assert shown["explanation"].heatmaps["grad_cam"].size == (32, 32)
    assert {path.name for path in (tmp_path / "explanations").iterdir()} == {"cat.png", "cat.html", "cat.npz"}
