"""What loading did with every tensor."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from zoo.pretrained.card import WeightCard


@dataclass(frozen=True)
class LoadReport:
    """Every tensor of the model and of the source, and what became of it; what has no explanation is an error.

    Args:
        source: Where the weights came from, as it was given.
        model: Name of the model.
        sha256: Digest of the file.
        used: Ours to theirs: they compute here what they computed there.
        rewritten: Those of the used whose values another layout writes otherwise, to what was done.
        adapted: Ours to what was done so that it fits another head or other input channels.
        missing: Ours to why it may be missing; the fresh value stays.
        unexpected: Theirs to why it is left out.
        peeled: Wrappers' prefixes that were taken off the names.
        entry: The entry of a checkpoint that was read.
        card: The card, for weights that have one.
    """

    source: str
    model: str
    sha256: str
    used: Mapping[str, str]
    rewritten: Mapping[str, str] = field(default_factory=dict)
    adapted: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    unexpected: Mapping[str, str] = field(default_factory=dict)
    peeled: tuple[str, ...] = ()
    entry: str | None = None
    card: WeightCard | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the model computes what the source computed: nothing adapted, nothing fresh but counts of batches."""
        return not self.adapted and all(name.endswith(".num_batches_tracked") for name in self.missing)

    def summary(self) -> str:
        """Return one line: how many tensors were used, and every other thing that was done."""
        done = [f"{len(self.used)} tensors used"]
        kinds = {"of them rewritten": self.rewritten, "adapted": self.adapted}
        kinds |= {"fresh": self.missing, "left out": self.unexpected}
        for verb, reasons in kinds.items():
            done += [f"{count} {verb} ({reason})" for reason, count in Counter(reasons.values()).items()]
        return f"{self.model} from {self.source}: {', '.join(done)}"

    def describe(self) -> str:
        """Return the summary, and a line for each tensor that was not simply taken under its own name."""
        lines = [self.summary(), f"sha256 {self.sha256}"]
        if self.entry:
            lines.append(f"entry {self.entry}")
        if self.peeled:
            lines.append(f"prefixes taken off: {' '.join(self.peeled)}")
        lines += [f"{ours} <- {theirs}" for ours, theirs in self.used.items() if ours != theirs]
        for reasons in (self.rewritten, self.adapted, self.missing, self.unexpected):
            lines += [f"{name}: {reason}" for name, reason in reasons.items()]
        return "\n".join(lines)
