"""SE, CBAM or nothing for one's own images: what a careful practitioner does, in order.

1. Measure the images, and the price of each gate beside the plain net. A gate over the latency budget is not tried.
2. Measure the pace with one short run, and plan the length of all runs, the number of seeds and the looks from it.
3. Train plain and SE, in pairs: one seed gives both the same order of images, augmentation and shared initial weights.
4. Look whether the data, the plain net's gradient or its errors say that it spends itself on the wrong places. Only
   then is CBAM, whose spatial gate could mend that, trained too.
5. Add seeds while a difference is open and budget is left, by the rule of
   :mod:`zoo.comparison.recommendation.sequential`; then stop.
6. Decide on held-out images; where all nets only guess, say that and recommend nothing. Only after that the test
   images, which every run has answered at its end, are read, once.

Both gates start at the identity (``identity_start``), so that short runs measure what the gate learns and not what a
fresh gate costs.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from zoo.comparison.choices import Choice
from zoo.comparison.recommendation.answer import Examples, FinalAccuracy, Recommendation, Request
from zoo.comparison.recommendation.data_measures import DataMeasures
from zoo.comparison.recommendation.decision import Contrast, Decision, choose, contrast_at, find_guessing
from zoo.comparison.recommendation.evidence import (
    Sign,
    error_rates_of,
    find_signs,
    measure_held_out,
    measure_saliency,
    read_held_out,
)
from zoo.comparison.recommendation.memory import Memory
from zoo.comparison.recommendation.planning import plan_trials
from zoo.comparison.recommendation.price import Price
from zoo.comparison.recommendation.probing import Workplace
from zoo.comparison.recommendation.sequential import SequentialRule
from zoo.comparison.recommendation.trials import PLAIN, Clock, Trials, create_study
from zoo.provenance import code_digest

GATES = (Choice("se", {"identity_start": True}), Choice("cbam", {"identity_start": True}))
"""Cheapest first: channels alone, then channels and positions."""

SPATIAL = "cbam"

_CLOSING_SECONDS = 5.0
_FEWEST_SEEDS = 2


def recommend(request: Request, *, say: Callable[[str], None] = print) -> Recommendation:
    """Answer a request; where an interrupted session left runs in its folder, go on with them.

    Args:
        request: What is asked.
        say: Told, a line at a time, what happens.

    Raises:
        ValueError: The data, an option or the budget will not do, the folder holds the answer to something else, or a
            run failed.
        KeyboardInterrupt: Nothing is lost: the same request goes on.
    """
    memory = Memory(request)
    clock = Clock(60 * request.budget_minutes - _CLOSING_SECONDS, memory.used_s, say)
    place = Workplace.open(request, GATES)
    memory.bind(images=place.data.digest(), code=code_digest())
    try:
        return _Inquiry(request, place, memory, clock, say).answer()
    finally:
        memory.used_s = clock.used_s


class _Inquiry:
    """One call of :func:`recommend`, step by step; what a step finds stays for the answer."""

    def __init__(
        self, request: Request, place: Workplace, memory: Memory, clock: Clock, say: Callable[[str], None]
    ) -> None:
        self.request = request
        self.place = place
        self.memory = memory
        self.clock = clock
        self.say = say
        self.refused: dict[str, str] = {}
        self.signs: list[Sign] = []
        self.examples: Examples | None = None
        self.contrasts: dict[tuple[str, str], Contrast] = {}
        self.trials: Trials | None = None
        self.rule: SequentialRule | None = None

    def answer(self) -> Recommendation:
        self.images = read_held_out(self.place.data)
        self.measures = measure_held_out(self.images)
        self.summary = DataMeasures.of(self.measures)
        self.say(
            f"{self.place.data.name}: {self.summary.num_images} held-out images measured, position spread "
            f"{self.summary.position_spread:.3f}, clutter {self.summary.clutter:.3f}"
        )
        self.prices = self.memory.recall_prices() or self.memory.keep_prices(self.place.measure_prices(GATES))
        self.refuse(over_latency_budget(self.prices, self.request.latency_budget_percent))
        gates = [gate for gate in GATES if gate.name not in self.refused]
        tried = self.compare(gates) if gates else []
        decision = self.decide(tried)
        self.say(f"Decided: {decision.net if decision.confidence != 'nothing learned' else 'nothing'}")
        return self.close(decision, tried)

    def decide(self, tried: Sequence[str]) -> Decision:
        """Choose, unless nothing was learned that could differ."""
        decision = choose(tried, self.contrasts, self.request.margin)
        if decision.confidence == "not shown":
            decision = dataclasses.replace(decision, reason=f"{decision.reason}; {self.how_to_go_on()}")
        if self.trials is None or decision.net != PLAIN:
            return decision
        top1 = {net: validation_top1(self.trials, net) for net in (PLAIN, *tried)}
        chance = self.images.labels.bincount().max().item() / len(self.images.labels)
        guessing = find_guessing(top1, chance, len(self.trials.answers[PLAIN, 0]))
        return decision if guessing is None else Decision(PLAIN, "nothing learned", guessing)

    def how_to_go_on(self) -> str:
        """Say what more minutes could do where a difference is open."""
        if self.rule is not None and self.memory.recall_look(len(self.rule.looks) - 1) is None:
            return "the same command with more --budget adds seeds"
        return "all looks that were planned are taken, so that more --budget asks for another --folder"

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Leave gates out, and say why."""
        self.refused |= reasons
        for reason in reasons.values():
            self.say(reason)

    def compare(self, gates: Sequence[Choice]) -> list[str]:
        """Train and compare; return the gates that were tried, cheapest first."""
        trials, rule = self.trials, self.rule = self.plan(gates)
        names = [gate.name for gate in gates]
        num_seeds = trials.carry_out([PLAIN, *(name for name in names if name != SPATIAL)], rule.looks[0])
        if num_seeds < _FEWEST_SEEDS:
            raise ValueError(
                f"the budget was spent after {num_seeds} of {rule.looks[0]} seeds, too few to compare anything; "
                "the same command with more --budget goes on from there"
            )
        self.look_for_signs(trials, num_seeds)
        if SPATIAL in names:
            num_seeds = self.try_spatial(trials, num_seeds)
        tried = [name for name in names if name not in self.refused]
        self.add_seeds(trials, rule, tried, num_seeds)
        return tried

    def plan(self, gates: Sequence[Choice]) -> tuple[Trials, SequentialRule]:
        """Decide on length and number of the runs, or recall what was decided."""
        request, data = self.request, self.place.data
        recalled = self.memory.recall_plan()
        if recalled is None:
            nets = [PLAIN, *(gate.name for gate in gates)]
            pace = self.place.measure_pace(nets, self.prices, self.clock)
            plan = plan_trials(self.clock.left_s, pace)
            warmup = request.recipe.get("optimization", {}).get("warmup_epochs") or 0
            if warmup >= plan.epochs:
                raise ValueError(
                    f"optimization.warmup_epochs ({warmup}) must be below the {plan.epochs} epochs that a run has "
                    "within the budget; give fewer, or --budget more minutes"
                )
            recalled = self.memory.keep_plan(plan, pace)
        plan, pace = recalled
        rule = SequentialRule(plan.looks, num_contrasts=len(gates) * (len(gates) + 1) // 2)
        self.say(f"Runs of {plan.epochs} epochs. {rule.describe()}")
        recipe = dict(request.recipe)
        study = create_study(
            request.model, gates, request.data, recipe=recipe, epochs=plan.epochs, seeds=plan.looks[-1]
        )
        trials = Trials(study, plan, pace, data, self.place.device, request.folder / "runs", self.clock)
        return trials, rule

    def look_for_signs(self, trials: Trials, num_seeds: int) -> None:
        """Ask data, gradient and errors of the plain net whether it looks at the wrong places."""
        plain = trials.load(PLAIN, 0)
        saliency = measure_saliency(plain, self.place.data, self.images, self.measures, self.place.device)
        error_rates = error_rates_of(trials.stack(PLAIN, num_seeds), self.images.indices)
        self.signs = find_signs(self.summary, self.measures, saliency, error_rates)
        self.examples = Examples(self.images, self.measures, saliency)
        for sign in self.signs:
            self.say(f"{'sign' if sign.holds else 'no sign'}: {sign.sentence}")

    def try_spatial(self, trials: Trials, num_seeds: int) -> int:
        """Train the spatial gate if anything speaks for it; return of how many seeds all tried nets stand."""
        if not any(sign.holds for sign in self.signs):
            reason = "nothing in the data, the gradient or the errors says that the net looks at the wrong places"
            self.refuse({SPATIAL: f"{SPATIAL} was not tried: {reason}"})
            return num_seeds
        done = trials.carry_out([SPATIAL], num_seeds)
        if done < max(_FEWEST_SEEDS, self.memory.recall_look(0) or 0):
            self.refuse({SPATIAL: f"{SPATIAL} was not tried: the budget was spent after {done} of its runs"})
            return num_seeds
        return done

    def add_seeds(self, trials: Trials, rule: SequentialRule, tried: Sequence[str], num_seeds: int) -> None:
        """Look at the differences, and go on with what is open while there are looks and budget.

        A look that an earlier session took, of however many seeds, is taken of the same ones again: its share of the
        error is spent, and more budget goes to the next look.
        """
        nets = set(tried)
        num_looked = 0
        for look, planned in enumerate(rule.looks):
            taken = self.memory.recall_look(look)
            if look:
                wanted = [PLAIN, *(name for name in tried if name in nets)]
                num_seeds = trials.carry_out(wanted, planned if taken is None else taken)
                if num_seeds <= num_looked or num_seeds < (taken or 0):
                    return
            num_looked = min(num_seeds, num_seeds if taken is None else taken)
            self.memory.keep_look(look, num_looked)
            self.look(trials, rule, look, nets, num_looked)
            nets = undecided(tried, self.contrasts, self.request.margin)
            if not nets:
                return

    def look(self, trials: Trials, rule: SequentialRule, look: int, nets: set[str], num_seeds: int) -> None:
        """Bring the contrasts of some nets, with the plain one and among each other, up to date."""
        ordered = [gate.name for gate in GATES if gate.name in nets]
        pairs = [(net, PLAIN) for net in ordered] + [(dearer, cheaper) for cheaper, dearer in combinations(ordered, 2)]
        for net, base in pairs:
            if (net, base) in self.contrasts and not self.contrasts[net, base].is_open:
                continue
            contrast = contrast_at(
                trials, net, base, rule=rule, look=look, num_seeds=num_seeds, margin=self.request.margin
            )
            self.contrasts[net, base] = contrast
            self.say(f"look {look + 1}: {contrast.sentence()}")

    def close(self, decision: Decision, tried: Sequence[str]) -> Recommendation:
        """Read the test figures, now that the decision stands, and put everything together."""
        nets = [PLAIN, *tried] if tried else []
        return Recommendation(
            request=self.request,
            decision=decision,
            data_text=self.place.data.describe(),
            summary=self.summary,
            signs=self.signs,
            prices=self.prices,
            refused=self.refused,
            plan=self.trials.plan if self.trials else None,
            rule=self.rule,
            contrasts=list(self.contrasts.values()),
            validation_top1={net: validation_top1(self.trials, net) for net in nets} if self.trials else {},
            test=[FinalAccuracy(net, test_top1(self.trials, net)) for net in nets] if self.trials else [],
            used_minutes=self.clock.used_s / 60,
            examples=self.examples,
        )


def over_latency_budget(prices: Mapping[str, Price], budget_percent: float | None) -> dict[str, str]:
    """Return the gates that cost one image more time than is allowed, each with the reason in a sentence."""
    if budget_percent is None:
        return {}
    return {
        name: f"{name} was not tried: it takes {price.latency.percent:.0f} % more time per image than the plain net, "
        f"and {budget_percent:g} % are allowed"
        for name, price in prices.items()
        if name != PLAIN and price.latency.percent > budget_percent
    }


def undecided(tried: Sequence[str], contrasts: Mapping[tuple[str, str], Contrast], margin: float) -> set[str]:
    """Return the gates whose runs could still change the answer.

    Those whose difference to the plain net is open, and two that are both worth their price while it is open which of
    them is better.
    """
    nets = {gate for gate in tried if contrasts[gate, PLAIN].is_open}
    for cheaper, dearer in combinations(tried, 2):
        both = contrasts[cheaper, PLAIN].is_worth(margin) and contrasts[dearer, PLAIN].is_worth(margin)
        if both and contrasts[dearer, cheaper].is_open:
            nets |= {cheaper, dearer}
    return nets


def validation_top1(trials: Trials, net: str) -> tuple[float, ...]:
    """Return the accuracy of each seed of a net on the held-out images."""
    return tuple(float(trials.answers[key].mean()) for key in sorted(trials.answers) if key[0] == net)


def test_top1(trials: Trials, net: str) -> tuple[float, ...]:
    """Return the accuracy of each seed of a net on the test images after its last epoch, as its run found it."""
    results = [
        json.loads(trials.plan_of(net, seed).run.result.read_text(encoding="utf-8"))
        for name, seed in sorted(trials.answers)
        if name == net
    ]
    return tuple(float(result["last_epoch"]["top1"]) for result in results)
