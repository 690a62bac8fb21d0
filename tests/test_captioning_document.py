"""What docs/captioning.md says can be run."""

import re
from pathlib import Path

import pytest

from zoo.cli.main import create_parser
from zoo.config import parse_run_config
from zoo.evaluation.options import create_evaluation_parser

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "captioning.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
def test_python_runs_as_shown(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/captioning.md", "exec"), {})
    assert (tmp_path / "scene.png").exists() == ("scene.png" in block)


def test_command_lines_shown_have_options_that_exist(monkeypatch):
    monkeypatch.chdir(ROOT)
    _, by_name = create_parser()
    seen = set()
    for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            program, *words = line.split("#")[0].split()
            if program == "zoo":
                by_name[words[0]].parse_args(words[1:])
            elif words[0] == "train.py":
                parse_run_config(words[1:])
            else:
                assert words[0] == "evaluate.py"
                create_evaluation_parser().parse_args(words[1:])
            seen.add(words[0])
    assert seen == {"train.py", "evaluate.py", "caption"}
