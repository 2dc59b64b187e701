"""The curriculum itself: what failed so far, and the tasks of the next phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import Field

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.sampling.server import Server, ServerConfig
from oneiro.systems.webrl.curriculum.operators import (
    BACKTICKED,
    draw_task,
    generation_prompt,
    is_sibling,
    move_nearer,
    paraphrase,
    pass_gates,
    resolve,
    task_key,
    within,
)
from oneiro_web import validate
from oneiro_web.env import WebConfig
from oneiro_web.plugin import WebWorld
from oneiro_web.tasks import Task
from oneiro_web.templates.base import Template
from oneiro_web.templates.registry import template_of

OPERATORS = ("resample", "sibling", "simplify", "complicate", "paraphrase")

Values = Callable[[Sequence[Task]], Sequence[float]]
"""Tasks -> the critic's probability of success in their first state."""


class OperatorShares(Settings):
    """How often each operator is tried."""

    resample: float = Field(0.4, ge=0)
    """Share of new tasks of the same template with other content."""
    sibling: float = Field(0.2, ge=0)
    """Share of new tasks from another template that shares a skill."""
    simplify: float = Field(0.2, ge=0)
    """Share of new tasks that are shorter."""
    complicate: float = Field(0.1, ge=0)
    """Share of new tasks from a longer sibling."""
    paraphrase: float = Field(0.1, ge=0)
    """Share of new tasks in other words."""


class CurriculumSettings(Settings):
    """How tasks grow."""

    tasks: int = Field(500, ge=1)
    """Tasks of a phase."""
    grow: bool = True
    """False: every phase attempts the given tasks, those of phase 0, in turn (the ablation without curriculum)."""
    choose: Literal["failures", "random", "learnable"] = "failures"
    """`failures`: new tasks grow from failed ones, and the critic's band chooses among them. `random`: new tasks of any
    trained template, with the same filters but the band. `learnable`: the same, each template as often as p (1 - p) of
    its share p of solved attempts says, so that groups of attempts vary: growing from failures ends at templates that
    nobody solves.
    """
    operators: OperatorShares = OperatorShares()
    recency: float = Field(0.5, gt=0, le=1)
    """Weight of a failure for each phase that has passed since."""
    wordings: int | None = Field(None, ge=1)
    """Draw from the first so many wordings of an intent; None: from all. `paraphrase` takes any."""
    band: tuple[float, float] = (0.05, 0.75)
    """What the critic must say of a task's first state, ends included."""
    min_auc: float = Field(0.6, ge=0, le=1)
    """The band is used where the critic's area under the ROC curve on fresh tasks is at least this; below it, what it
    says of a task is noise.
    """
    tries: int = Field(6, ge=1)
    """Candidates for each wanted task before the band is widened."""
    gates: Literal["all", "oracle", "none"] = "all"
    """`all`: the oracle does the task twice with the same score and agents that do nothing never do; `oracle`: the
    oracle does it once; `none`: tasks of our own templates, whose oracles are tested, are taken as drawn.
    """
    generator: ServerConfig | None = None
    """A language model that proposes tasks besides, behind an OpenAI-compatible address."""
    generated_share: float = Field(0.5, ge=0, le=1)
    """Part of the candidates that it proposes."""


@dataclass
class Growth:
    """The tasks of a phase, and what happened to the candidates."""

    tasks: list[Task]
    origins: list[str]
    """The operator that made each."""
    values: list[float | None]
    """What the critic said of each; None without a critic."""
    counts: dict[str, int] = field(default_factory=dict)
    """Candidates by what became of them: kept, duplicate, test overlap, gate, outside the band, none drawn."""
    widened: bool = False
    """Too few were in the band: those nearest to it were taken too."""


class Curriculum:
    """Failures so far, and the tasks that grow from them."""

    def __init__(
        self,
        settings: CurriculumSettings,
        templates: Sequence[Template],
        config: WebConfig,
        test_keys: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        """`templates` may be trained on; `config` is the world in which gates try tasks; `test_keys` are `task_key`s of
        the test splits.
        """
        if not templates:
            raise OneiroError("the curriculum has no templates to grow tasks from; name some that are not held out")
        self.settings, self.seed = settings, seed
        self.templates = {template.name: template for template in templates}
        self.config, self.test_keys = config, frozenset(test_keys)
        self.failures: list[tuple[int, Task]] = []
        self.seen: set[str] = set()
        self.lengths: dict[str, float] = {}
        """Template -> actions of its oracle, as last measured."""
        self.solved: dict[str, list[float]] = {}
        """Template -> how many of its tasks were attempted and how many solved, those of past phases at `recency`."""

    # What it remembers ------------------------------------------------------------------------------------------------

    def note(self, phase: int, tasks: Sequence[Task], solved: Sequence[float]) -> None:
        """The outcome of a phase's tasks: which share of the attempts at each was a success."""
        self.seen.update(task_key(task) for task in tasks)
        self.failures += [(phase, task) for task, share in zip(tasks, solved, strict=True) if not share]
        latest: dict[str, list[float]] = {}
        for task, share in zip(tasks, solved, strict=True):
            latest.setdefault(str(task.intent_template_id), []).append(float(share))
        fade = self.settings.recency
        for name, shares in latest.items():
            attempted, done = self.solved.get(name, (0.0, 0.0))
            # One phase has a few tasks of a template, too few to tell what is learnable from what is out of reach.
            self.solved[name] = [fade * attempted + len(shares), fade * done + sum(shares)]

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` takes it back."""
        return {
            "failures": [[phase, task.model_dump(mode="json")] for phase, task in self.failures],
            "seen": sorted(self.seen),
            "lengths": dict(sorted(self.lengths.items())),
            "solved": dict(sorted(self.solved.items())),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.failures = [(int(phase), Task.model_validate(task)) for phase, task in state["failures"]]
        self.seen, self.lengths, self.solved = set(state["seen"]), dict(state["lengths"]), dict(state["solved"])

    def draw(self, template: Template, rng: np.random.Generator) -> Task | None:
        """A task of a template."""
        return draw_task(template, rng, self.settings.wordings)

    # Tasks ------------------------------------------------------------------------------------------------------------

    def initial(self, count: int, templates: Sequence[Template] = ()) -> list[Task]:
        """Tasks to begin with: of every template in turn, on training content."""
        chosen = list(templates) or list(self.templates.values())
        if count < len(chosen):
            # They stand by site: the first few would leave whole sites without a demonstration.
            order = generator(self.seed, "initial templates").permutation(len(chosen))
            chosen = [chosen[place] for place in order]
        tasks: dict[str, Task] = {}
        for number in range(count * self.settings.tries):
            template = chosen[number % len(chosen)]
            task = self.draw(template, generator(self.seed, "initial task", number))
            if task is not None and task_key(task) not in self.test_keys:
                tasks.setdefault(task_key(task), task)
            if len(tasks) == count:
                break
        return list(tasks.values())

    def grow(self, phase: int, values: Values | None = None) -> Growth:
        """The tasks of a phase, from the failures so far; without any, or at random, from the templates."""
        settings, wanted = self.settings, self.settings.tasks
        counts, keys = Counter[str](), set(self.seen)
        rng = generator(self.seed, "grow", phase)
        world = WebWorld(self.config)
        passed: list[tuple[Task, str, float | None]] = []
        per_site, templates = Counter[str](), Counter(template.site for template in self.templates.values())
        # Each site in proportion to its templates, as in the tests.
        room = {site: -(-wanted * count // len(self.templates)) for site, count in sorted(templates.items())}
        tried = 0
        try:
            while self._in_band(passed) < wanted and tried < wanted * settings.tries:
                batch: list[tuple[Task, str]] = []
                proposed = self._proposals(phase, tried, wanted)
                while len(batch) + self._in_band(passed) < wanted and tried < wanted * settings.tries:
                    tried += 1
                    site = min(room, key=lambda name: (per_site[name] >= room[name], per_site[name] / room[name], name))
                    task, origin = self._candidate(phase, site, rng, proposed, world)
                    what = self._refusal(task, keys, world)
                    if what is not None or task is None:
                        counts[what or "none drawn"] += 1
                        continue
                    keys.add(task_key(task))
                    per_site[task.sites[0]] += 1
                    batch.append((task, origin))
                estimates = (
                    [None] * len(batch) if values is None else [float(v) for v in values([task for task, _ in batch])]
                )
                for (task, origin), value in zip(batch, estimates, strict=True):
                    passed.append((task, origin, value))
                    if not self._fits(value):
                        per_site[task.sites[0]] -= 1
                        counts["outside the band"] += 1
        finally:
            world.close()
        return self._choose(passed, counts)

    def _choose(self, passed: list[tuple[Task, str, float | None]], counts: Counter[str]) -> Growth:
        """Those in the band; where they are too few, those nearest to it besides."""
        inside = [entry for entry in passed if self._fits(entry[2])][: self.settings.tasks]
        widened = len(inside) < self.settings.tasks and len(inside) < len(passed)
        if widened:
            outside = sorted((e for e in passed if not self._fits(e[2])), key=lambda e: self._distance(e[2]))
            inside += outside[: self.settings.tasks - len(inside)]
        counts["kept"] = len(inside)
        return Growth(
            [task for task, _, _ in inside],
            [origin for _, origin, _ in inside],
            [value for _, _, value in inside],
            dict(sorted(counts.items())),
            widened,
        )

    def _in_band(self, passed: Iterable[tuple[Task, str, float | None]]) -> int:
        return sum(self._fits(value) for _, _, value in passed)

    def _fits(self, value: float | None) -> bool:
        return value is None or within(value, self.settings.band)

    def _distance(self, value: float | None) -> float:
        low, high = self.settings.band
        assert value is not None
        return max(low - value, value - high)

    def _candidate(
        self, phase: int, site: str, rng: np.random.Generator, proposed: list[Task], world: WebWorld
    ) -> tuple[Task | None, str]:
        own = [task for task in proposed if task.sites[0] == site]
        if own:
            proposed.remove(own[0])
            return own[0], "generated"
        failures = [(then, task) for then, task in self.failures if task.sites[0] == site]
        if not failures or self.settings.choose != "failures":
            here = [template for template in self.templates.values() if template.site == site]
            weights = np.array([self.learnability(template.name) for template in here])
            if self.settings.choose != "learnable":
                weights = np.ones(len(here))
            return self.draw(here[int(rng.choice(len(here), p=weights / weights.sum()))], rng), "new"
        weights = np.array([self.settings.recency ** (phase - then) for then, _ in failures])
        _, seed_task = failures[int(rng.choice(len(failures), p=weights / weights.sum()))]
        shares = np.array([getattr(self.settings.operators, name) for name in OPERATORS], np.float64)
        name = OPERATORS[int(rng.choice(len(OPERATORS), p=shares / shares.sum()))]
        return self.apply(name, seed_task, rng, world), name

    def learnability(self, template: str) -> float:
        """p (1 - p) under Jeffreys' prior: a template that nobody tried is worth a try, and three failures do not rule
        one out.
        """
        tasks, solved = self.solved.get(template, (0.0, 0.0))
        share = (solved + 0.5) / (tasks + 1)
        return share * (1 - share)

    def apply(self, operator: str, task: Task, rng: np.random.Generator, world: WebWorld) -> Task | None:
        """A new task from an old one; None where the operator finds none."""
        template = template_of(task)
        if operator == "resample":
            return self.draw(template, rng)
        if operator == "paraphrase":
            return paraphrase(task, rng)
        siblings = [other for other in self.templates.values() if is_sibling(other, template)]
        if operator == "simplify":
            shorter = [other for other in siblings if self._length(other) < self._length(template)]
            if not shorter or rng.random() < 0.5:
                return move_nearer(task, world)
            siblings = shorter
        elif operator == "complicate":
            siblings = [other for other in siblings if self._length(other) > self._length(template)]
        return self.draw(siblings[int(rng.integers(len(siblings)))], rng) if siblings else None

    def _length(self, template: Template) -> float:
        """Actions of its oracle, measured on one task where none has been gated yet."""
        if template.name not in self.lengths:
            task = draw_task(template, generator(self.seed, "length", template.name))
            world = WebWorld(self.config)
            try:
                played = validate.play(world, "oracle", task) if task is not None else None
            finally:
                world.close()
            self.lengths[template.name] = float(played.actions) if played else float("inf")
        return self.lengths[template.name]

    def _refusal(self, task: Task | None, keys: set[str], world: WebWorld) -> str | None:
        """Why a candidate is not taken; None for one that may be."""
        if task is None:
            return "none drawn"
        if task_key(task) in keys:
            return "duplicate"
        if task_key(task) in self.test_keys:
            return "test overlap"
        if self.settings.gates == "none":
            return None
        length = pass_gates(task, world, self.settings.gates)
        if length is None:
            return "gate"
        assert task.spec is not None
        if not (task.model_extra or {}).get("solution"):
            self.lengths[task.spec.template_id] = float(length)
        return None

    def _proposals(self, phase: int, tried: int, wanted: int) -> list[Task]:
        """Tasks that the generator model proposes, those with a grader; none where there is no generator."""
        if self.settings.generator is None or not self.failures or self.settings.choose != "failures":
            return []
        rng = generator(self.seed, "generator", phase, tried)
        by_site: dict[str, list[Task]] = {}
        for _, task in self.failures:
            by_site.setdefault(task.sites[0], []).append(task)
        prompts, sites = [], []
        for site, tasks in sorted(by_site.items()):
            chosen = [tasks[i] for i in rng.permutation(len(tasks))[:10]]
            prompts.append([{"role": "user", "content": generation_prompt(site, chosen)}])
            sites.append((site, chosen))
        proposals = []
        for (site, chosen), (reply,) in zip(sites, Server(self.settings.generator).chat(prompts), strict=True):
            here = [template for template in self.templates.values() if template.site == site]
            contents = [task.spec.content for task in chosen if task.spec is not None]
            for text in BACKTICKED.findall(reply.text or ""):
                if (meant := resolve(text, here, contents, rng)) is not None:
                    proposals.append(meant)
        return proposals[: round(wanted * self.settings.generated_share)]
