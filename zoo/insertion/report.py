"""What an insertion did, to be printed or kept."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from zoo.functional.validation import check_positive_int
from zoo.insertion.latency import LatencyRatio, measure_latency_ratio
from zoo.insertion.tracing import random_images


@dataclass(frozen=True)
class InsertedGate:
    """One gate that was put in.

    Args:
        name: Its qualified name.
        place: The module whose map it gates, and whether the map is that module's output or input.
        stage: Stage counted from 1; ``None`` where the caller chose the place.
        channels: Width of the map, as seen in the traced pass.
        height: Of the map at the traced input.
        width: Of the map at the traced input.
        parameters: Scalars it added.
        macs: Multiply-accumulates of its contractions for one image at the traced input.
        replaced: Class of the gate that was there before, if any.
    """

    name: str
    place: str
    stage: int | None
    channels: int
    height: int
    width: int
    parameters: int
    macs: int
    replaced: str | None = None


@dataclass(frozen=True)
class InsertionReport:
    """What :func:`zoo.insert_attention` did; ``print`` shows it as a table.

    Args:
        attention: Name of the mechanism, or of the function that built it.
        identity_start: Whether the gates start at the identity.
        input_shapes: Shapes of the tensors of the traced pass.
        gates: The gates, in the order in which they ran.
        plain_parameters: Scalars of the network before.
        max_difference: Largest absolute difference between what the network returned for the traced input before and
            after, in eval mode; ``None`` where outputs cannot be compared.
        latency: What the gates cost in time, once :meth:`with_latency` has measured it.
    """

    attention: str
    identity_start: bool
    input_shapes: tuple[tuple[int, ...], ...]
    gates: tuple[InsertedGate, ...]
    plain_parameters: int
    max_difference: float | None
    latency: LatencyRatio | None = None

    @property
    def added_parameters(self) -> int:
        """Scalars of all gates."""
        return sum(gate.parameters for gate in self.gates)

    @property
    def added_macs(self) -> int:
        """Multiply-accumulates of all gates for one image at the traced input; twice as many FLOPs."""
        return sum(gate.macs for gate in self.gates)

    def with_latency(
        self, model: nn.Module, example_input: Any = None, *, rounds: int = 11, batch_size: int | None = None
    ) -> "InsertionReport":
        """Time the network beside a copy without the gates, and return a report that holds the ratio.

        Args:
            model: The network this report is about.
            example_input: What it is called with; by default random images of the traced size.
            rounds: Pairs of passes, at least 3.
            batch_size: Images per pass, when ``example_input`` is left to us; as in the traced pass by default.

        Raises:
            ValueError: Fewer than 3 rounds, a batch size beside an example, no example for a network that was traced
                on something else than images, or a model without inserted gates.
        """
        if example_input is None:
            shapes = [shape for shape in self.input_shapes if len(shape) == 4]
            if len(self.input_shapes) != 1 or not shapes:
                raise ValueError(f"the traced input ({self.input_shapes}) was no batch of images; pass example_input")
            num_images = shapes[0][0] if batch_size is None else check_positive_int("batch_size", batch_size)
            example_input = random_images(model, (num_images, *shapes[0][1:]))
        elif batch_size is not None:
            raise ValueError(f"batch_size ({batch_size}) has no effect beside an example_input")
        latency = measure_latency_ratio(model, example_input, rounds=rounds)
        return dataclasses.replace(self, latency=latency)

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested values, with the sums."""
        sums = {"added_parameters": self.added_parameters, "added_macs": self.added_macs}
        return dataclasses.asdict(self) | sums

    def __str__(self) -> str:
        start = "identity start" if self.identity_start else "fresh start"
        difference = "not comparable" if self.max_difference is None else f"{self.max_difference:.3g}"
        shapes = ", ".join(map(str, self.input_shapes))
        places = "1 place" if len(self.gates) == 1 else f"{len(self.gates)} places"
        return "\n".join(
            [
                f"{self.attention} at {places} ({start}), traced on {shapes}",
                *_format_table(self.gates),
                f"parameters  {self.plain_parameters:,} + {self.added_parameters:,}",
                f"MACs        + {self.added_macs:,} per image",
                f"outputs     largest difference to before: {difference}",
                f"latency     {self.latency or 'not measured; report.with_latency(model) measures it'}",
            ]
        )


def _format_table(gates: Sequence[InsertedGate]) -> list[str]:
    rows = [("gate", "stage", "map", "parameters", "MACs")]
    for gate in gates:
        name = f"{gate.name} (instead of {gate.replaced})" if gate.replaced else gate.name
        size = f"{gate.channels} x {gate.height} x {gate.width}"
        rows.append((name, str(gate.stage or "-"), size, f"{gate.parameters:,}", f"{gate.macs:,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
