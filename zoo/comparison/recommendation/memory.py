"""What a recommendation keeps in its folder between sessions: request, images, plan, looks and the time it used."""

import json
from dataclasses import asdict
from typing import Any

from zoo.comparison.recommendation.answer import Request
from zoo.comparison.recommendation.planning import Pace, TrialPlan
from zoo.comparison.recommendation.price import Price, Ratio
from zoo.serialization import write_atomically

# More budget, or another price of time, may be asked for later: the looks stay those that were planned.
_MAY_CHANGE = ("budget_minutes",)


class Memory:
    """The file ``plan.json`` in the folder of a request.

    Plan and looks must survive an interruption: what was planned again, or looked at again, after a look at the results
    would not keep the rule's promise.

    Args:
        request: Its folder is read, and written at every change.

    Raises:
        ValueError: The folder holds the plan of another request; the message names what differs.
    """

    def __init__(self, request: Request) -> None:
        self.path = request.folder / "plan.json"
        asked = json.loads(json.dumps(request.to_dict()))
        self._content: dict[str, Any] = {"request": asked, "used_seconds": 0.0}
        if not self.path.is_file():
            return
        found = json.loads(self.path.read_text(encoding="utf-8"))
        differing = [name for name in asked if name not in _MAY_CHANGE and found["request"].get(name) != asked[name]]
        if differing:
            raise ValueError(
                f"{request.folder} holds a recommendation with another {' and '.join(differing)} "
                f"({', '.join(str(found['request'].get(name)) for name in differing)}); choose another --folder"
            )
        self._content = {**found, "request": asked}

    def bind(self, *, images: str, code: str) -> None:
        """Make sure that earlier sessions saw the same images and ran the same code.

        Args:
            images: Digest of the data.
            code: Digest of the code that decides the runs' results.

        Raises:
            ValueError: They did not. A folder of another place may have the same name, and images may have been added.
        """
        origin = {"images": images, "code": code}
        if self.path.is_file() and (known := self._content.get("origin", {})) != origin:
            what = "of other images" if known.get("images", images) != images else "made by another version of the code"
            raise ValueError(f"{self.path.parent} holds a recommendation {what}; choose another --folder")
        self._content["origin"] = origin

    @property
    def used_s(self) -> float:
        """Seconds that all sessions used."""
        return float(self._content["used_seconds"])

    @used_s.setter
    def used_s(self, seconds: float) -> None:
        self._content["used_seconds"] = round(seconds, 1)
        self._write()

    def recall_prices(self) -> dict[str, Price] | None:
        """Return the prices that an earlier session measured."""
        found = self._content.get("prices")
        if found is None:
            return None
        return {name: Price(**_with_ratios(values)) for name, values in found.items()}

    def keep_prices(self, prices: dict[str, Price]) -> dict[str, Price]:
        """Write prices down and return them."""
        self._content["prices"] = {name: asdict(price) for name, price in prices.items()}
        self._write()
        return prices

    def recall_plan(self) -> tuple[TrialPlan, Pace] | None:
        """Return the plan that an earlier session made, and the pace it was made from."""
        found = self._content.get("plan")
        if found is None:
            return None
        return TrialPlan(found["epochs"], tuple(found["looks"])), Pace(**self._content["pace"])

    def keep_plan(self, plan: TrialPlan, pace: Pace) -> tuple[TrialPlan, Pace]:
        """Write a plan and its pace down and return them."""
        self._content |= {"plan": asdict(plan), "pace": asdict(pace)}
        self._write()
        return plan, pace

    def recall_look(self, look: int) -> int | None:
        """Return of how many seeds a look was taken, counted from 0; ``None`` if it was not taken yet."""
        found = self._content.get("looks", {}).get(str(look))
        return None if found is None else int(found)

    def keep_look(self, look: int, num_seeds: int) -> None:
        """Write down, before its results are seen, of how many seeds a look is taken."""
        self._content["looks"] = {**self._content.get("looks", {}), str(look): num_seeds}
        self._write()

    def _write(self) -> None:
        write_atomically(self.path, json.dumps(self._content, indent=2) + "\n")


def _with_ratios(values: dict[str, Any]) -> dict[str, Any]:
    return {name: Ratio(**value) if isinstance(value, dict) else value for name, value in values.items()}
