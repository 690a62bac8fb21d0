"""The page about insertion: every example runs, and what it promises is a call away."""

import re
from pathlib import Path

import pytest

from zoo.insertion import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "inserting-attention.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: code.splitlines()[0])
def test_examples_run(code, capsys):
    exec(compile(code, PAGE.name, "exec"), {})


def test_the_first_example_is_ten_lines_and_prints_the_report(capsys):
    first = EXAMPLES[0]
    assert 'zoo.insert_attention(model, "cbam")' in first
    assert len([line for line in first.splitlines() if line.strip()]) <= 10
    exec(compile(first, PAGE.name, "exec"), {})
    assert "cbam at 8 places (identity start)" in capsys.readouterr().out


def test_the_page_names_every_family():
    text = PAGE.read_text(encoding="utf-8")
    words = {word for family in FAMILIES for word in re.findall(r"[A-Z]\w*Ne(?:t|Xt)(?=\W|V|$)", family.name)}
    assert words >= {"ResNet", "RegNet", "DenseNet", "ConvNeXt", "EfficientNet"}
    assert [word for word in words if word not in text] == []
