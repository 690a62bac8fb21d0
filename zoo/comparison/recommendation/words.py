"""How a recommendation is worded, the same in text and page."""

import shlex
from collections.abc import Mapping

from zoo.comparison.recommendation.answer import Recommendation
from zoo.comparison.recommendation.decision import Decision
from zoo.comparison.recommendation.price import Price, Ratio
from zoo.comparison.recommendation.trials import PLAIN
from zoo.comparison.study import merge
from zoo.serialization import format_yaml

SHORTENED = {
    ("trainer", name)
    for name in (
        "limit_train_batches",
        "limit_val_batches",
        "limit_test_batches",
        "max_steps",
        "max_time",
        "overfit_batches",
    )
}
"""Options that make the runs of a recommendation short and have no place in a training at full length."""


def headline(decision: Decision) -> str:
    """Say in a line what is recommended and how sure that is.

    >>> headline(Decision("none", "not shown", ""))
    'Leave the net plain: no gain worth its price is shown.'
    """
    if decision.net != PLAIN:
        return f"Use {decision.net}: its gain is shown and worth its price."
    return {
        "shown": "Leave the net plain: there is no gain worth its price.",
        "not shown": "Leave the net plain: no gain worth its price is shown.",
        "not tried": "Leave the net plain: no gate was tried.",
        "nothing learned": "No recommendation: the runs are too short for any net to learn these images.",
    }[decision.confidence]


def points(fraction: float) -> str:
    """Write a fraction in percentage points.

    >>> points(0.005)
    '0.5'
    """
    return f"{100 * fraction:g}"


def ratio_words(ratio: Ratio) -> str:
    """Write a ratio as a change in percent.

    >>> ratio_words(Ratio(1.12, 1.08, 1.3))
    '+12 % (+8 to +30)'
    """
    low, high = 100 * (ratio.low - 1), 100 * (ratio.high - 1)
    return f"{ratio.percent:+.0f} % ({low:+.0f} to {high:+.0f})"


def price_words(price: Price) -> str:
    """Write what a gate costs."""
    return (
        f"time per image {ratio_words(price.latency)}, time per training step {ratio_words(price.training)}, "
        f"{price.parameters:,} parameters, {price.macs:,} MACs"
    )


def next_command(answer: Recommendation) -> list[str]:
    """Return the lines that say how to train what is recommended, at full length."""
    request = answer.request
    if answer.decision.confidence == "nothing learned":
        more = f"--budget {4 * request.budget_minutes:g} and another --folder"
        return [f"Ask again with longer runs: the same command with {more}, or a lighter --model for the same budget."]
    words = ["python", "train.py", "--model.name", request.model.name, "--data.name", request.data.name]
    named = {"model": dict(request.model.options), "data": dict(request.data.options)}
    for section, options in merge(dict(request.recipe), named).items():
        given = options if isinstance(options, Mapping) else {"": options}
        for name, value in given.items():
            if (section, name) in SHORTENED:
                continue
            words += [f"--{section}.{name}".removesuffix("."), _as_word(value)]
    words += ["--model.attention", answer.decision.net]
    if answer.decision.net != PLAIN:
        words += ["--model.attention_args", "{identity_start: true}"]
    return ["Train it at full length:", f"  {shlex.join(words)}"]


def _as_word(value: object) -> str:
    return value if isinstance(value, str) else format_yaml(value).strip().removesuffix("\n...")
