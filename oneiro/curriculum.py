"""A curriculum that grows from failures: new tasks out of those an agent could not do, each with its own grader.

Operators work on a task's template and slots (WebRL asks a language model for text, and the text has no grader):

    resample    other content and slots, same template
    sibling     another template of the site that shares a skill
    simplify    a shorter sibling, or the same task from a nearer page
    complicate  a longer sibling
    paraphrase  the same task in other words

A candidate passes the filters in order: duplicates, overlap with the test splits, the admission gates (it can be done,
and cannot be done by doing nothing), and the critic's band. What the curriculum knows is plain JSON and part of a run's
state: the same state and phase give the same tasks.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import Field

from oneiro.errors import OneiroError
from oneiro.recipe import Settings
from oneiro.sampling.server import Server, ServerConfig
from oneiro.seeds import generator
from oneiro.worlds.web import exam
from oneiro.worlds.web.tasks import Task
from oneiro.worlds.web.templates import TEMPLATES
from oneiro.worlds.web.templates.base import Content, Template
from oneiro.worlds.web.world import WebConfig, WebWorld, contents_in

OPERATORS = ("resample", "sibling", "simplify", "complicate", "paraphrase")
NULL_AGENTS = ("idle", "exit", "na", "random-answer")
"""Agents that do not do a task; none may score on it."""
DRAWS = 20
"""Attempts to draw a task of a template."""
RESOLVES = 300
"""Attempts to find the content that a generated text speaks of."""
BACKTICKED = re.compile(r"`([^`\n]{3,400})`")

Values = Callable[[Sequence[Task]], Sequence[float]]
"""Tasks -> the critic's probability of success in their first state."""


class OperatorShares(Settings):
    """How often each operator is tried."""

    resample: float = Field(0.4, ge=0)
    sibling: float = Field(0.2, ge=0)
    simplify: float = Field(0.2, ge=0)
    complicate: float = Field(0.1, ge=0)
    paraphrase: float = Field(0.1, ge=0)


class CurriculumSettings(Settings):
    """How tasks grow."""

    tasks: int = Field(500, ge=1)
    """Tasks of a phase."""
    grow: bool = True
    """False: every phase has the tasks of the first (the ablation without curriculum)."""
    operators: OperatorShares = OperatorShares()
    recency: float = Field(0.5, gt=0, le=1)
    """Weight of a failure for each phase that has passed since."""
    wordings: int | None = Field(None, ge=1)
    """Draw from the first so many wordings of an intent; None: from all. `paraphrase` takes any."""
    band: tuple[float, float] = (0.05, 0.75)
    """What the critic must say of a task's first state, ends included."""
    tries: int = Field(6, ge=1)
    """Candidates for each wanted task before the band is widened."""
    gates: Literal["all", "oracle"] = "all"
    """`all`: the oracle does the task twice with the same score and agents that do nothing never do; `oracle`: the
    oracle does it once.
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

    # What it remembers ------------------------------------------------------------------------------------------------

    def note(self, phase: int, tasks: Sequence[Task], done: Sequence[bool]) -> None:
        """The outcome of a phase's tasks."""
        self.seen.update(task_key(task) for task in tasks)
        self.failures += [(phase, task) for task, success in zip(tasks, done, strict=True) if not success]

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` takes it back."""
        return {
            "failures": [[phase, task.model_dump(mode="json")] for phase, task in self.failures],
            "seen": sorted(self.seen),
            "lengths": dict(sorted(self.lengths.items())),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.failures = [(int(phase), Task.model_validate(task)) for phase, task in state["failures"]]
        self.seen, self.lengths = set(state["seen"]), dict(state["lengths"])

    def draw(self, template: Template, rng: np.random.Generator) -> Task | None:
        """A task of a template."""
        return draw_task(template, rng, self.settings.wordings)

    # Tasks ------------------------------------------------------------------------------------------------------------

    def initial(self, count: int, templates: Sequence[Template] = ()) -> list[Task]:
        """Tasks to begin with: of every template in turn, on training content."""
        chosen = list(templates) or list(self.templates.values())
        found: dict[str, Task] = {}
        for number in range(count * self.settings.tries):
            template = chosen[number % len(chosen)]
            task = self.draw(template, generator(self.seed, "initial task", number))
            if task is not None and task_key(task) not in self.test_keys:
                found.setdefault(task_key(task), task)
            if len(found) == count:
                break
        return list(found.values())

    def grow(self, phase: int, values: Values | None = None) -> Growth:
        """The tasks of a phase, from the failures so far; without any, from the templates."""
        settings, wanted = self.settings, self.settings.tasks
        counts, keys = Counter[str](), set(self.seen)
        rng = generator(self.seed, "grow", phase)
        world = WebWorld(self.config)
        passed: list[tuple[Task, str, float | None]] = []
        per_site, sites = Counter[str](), sorted({template.site for template in self.templates.values()})
        room = -(-wanted // len(sites))
        tried = 0
        try:
            while self._in_band(passed) < wanted and tried < wanted * settings.tries:
                batch: list[tuple[Task, str]] = []
                proposed = self._proposals(phase, tried, wanted)
                while len(batch) + self._in_band(passed) < wanted and tried < wanted * settings.tries:
                    tried += 1
                    site = min(sites, key=lambda name: (per_site[name] >= room, per_site[name], name))
                    task, origin = self._candidate(phase, site, rng, proposed, world)
                    what = self._refused(task, keys, world)
                    if what is not None or task is None:
                        counts[what or "none drawn"] += 1
                        continue
                    keys.add(task_key(task))
                    per_site[task.sites[0]] += 1
                    batch.append((task, origin))
                said = (
                    [None] * len(batch) if values is None else [float(v) for v in values([task for task, _ in batch])]
                )
                for (task, origin), value in zip(batch, said, strict=True):
                    passed.append((task, origin, value))
                    if not self._fits(value):
                        per_site[task.sites[0]] -= 1
                        counts["outside the band"] += 1
        finally:
            world.close()
        return self._chosen(passed, counts)

    def _chosen(self, passed: list[tuple[Task, str, float | None]], counts: Counter[str]) -> Growth:
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
        return value is None or in_band(value, self.settings.band)

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
        if not failures:
            here = [template for template in self.templates.values() if template.site == site]
            return self.draw(here[int(rng.integers(len(here)))], rng), "new"
        weights = np.array([self.settings.recency ** (phase - then) for then, _ in failures])
        _, seed_task = failures[int(rng.choice(len(failures), p=weights / weights.sum()))]
        shares = np.array([getattr(self.settings.operators, name) for name in OPERATORS], np.float64)
        name = OPERATORS[int(rng.choice(len(OPERATORS), p=shares / shares.sum()))]
        return self.apply(name, seed_task, rng, world), name

    def apply(self, operator: str, task: Task, rng: np.random.Generator, world: WebWorld) -> Task | None:
        """A new task from an old one; None where the operator finds none."""
        assert task.spec is not None
        template = TEMPLATES[task.spec.template_id]
        if operator == "resample":
            return self.draw(template, rng)
        if operator == "paraphrase":
            return paraphrased(task, rng)
        siblings = [other for other in self.templates.values() if is_sibling(other, template)]
        if operator == "simplify":
            shorter = [other for other in siblings if self._length(other) < self._length(template)]
            if not shorter or rng.random() < 0.5:
                return nearer(task, world)
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
                played = exam.play(world, "oracle", task) if task is not None else None
            finally:
                world.close()
            self.lengths[template.name] = float(played.actions) if played else float("inf")
        return self.lengths[template.name]

    def _refused(self, task: Task | None, keys: set[str], world: WebWorld) -> str | None:
        """Why a candidate is not taken; None for one that may be."""
        if task is None:
            return "none drawn"
        if task_key(task) in keys:
            return "duplicate"
        if task_key(task) in self.test_keys:
            return "test overlap"
        length = gated(task, world, self.settings.gates)
        if length is None:
            return "gate"
        assert task.spec is not None
        self.lengths[task.spec.template_id] = float(length)
        return None

    def _proposals(self, phase: int, tried: int, wanted: int) -> list[Task]:
        """Tasks that the generator model proposes, those with a grader; none where there is no generator."""
        if self.settings.generator is None or not self.failures:
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
        found = []
        for (site, chosen), (reply,) in zip(sites, Server(self.settings.generator).chat(prompts), strict=True):
            here = [template for template in self.templates.values() if template.site == site]
            contents = [task.spec.content for task in chosen if task.spec is not None]
            for text in BACKTICKED.findall(reply.text or ""):
                if (meant := resolved(text, here, contents, rng)) is not None:
                    found.append(meant)
        return found[: round(wanted * self.settings.generated_share)]


# Operators and filters ------------------------------------------------------------------------------------------------


def in_band(value: float, band: tuple[float, float]) -> bool:
    """Both ends belong to it."""
    return band[0] <= value <= band[1]


def task_key(task: Task) -> str:
    """What makes two tasks one: the same site, content and intent, whatever the case and spaces; or the same slots."""
    words = re.sub(r"\W+", " ", task.intent.lower()).strip()
    content = task.spec.content if task.spec is not None else 0
    start = task.start_urls[0] if task.start_urls else ""
    return hashlib.blake2b(json.dumps([task.sites, content, words, start]).encode(), digest_size=8).hexdigest()


def draw_task(template: Template, rng: np.random.Generator, wordings: int | None = None) -> Task | None:
    """A task of a template on training content whose answer does not stand on its first page."""
    contents = contents_in("train")
    for _ in range(DRAWS):
        content = contents[int(rng.integers(len(contents)))]
        slots = template.draw(Content(template.site, content), rng)
        if slots is None:
            continue
        task = template.task(content, slots, int(rng.integers(len(template.intents[:wordings]))))
        if not template.leaks(task):
            return task
    return None


def is_sibling(one: Template, other: Template) -> bool:
    """Another template of the same site with a skill in common."""
    return one.name != other.name and one.site == other.site and bool(set(one.skills) & set(other.skills))


def paraphrased(task: Task, rng: np.random.Generator) -> Task | None:
    """The same task in other words."""
    assert task.spec is not None
    template = TEMPLATES[task.spec.template_id]
    made = [template.task(task.spec.content, task.spec.slots, wording) for wording in range(len(template.intents))]
    others = [other for other in made if other.intent != task.intent]
    return others[int(rng.integers(len(others)))] if others else None


def nearer(task: Task, world: WebWorld) -> Task | None:
    """The same task from the next page on the oracle's way; None where that page is the last, or changed something."""
    world.reset(seed=0, options={"task": task})
    first = world.page.url
    while not world.over and world.page.url == first:
        action = world.oracle()
        if action is None:
            return None
        world.step(action)
    if world.over or world.page.url in task.start_urls:
        return None
    return task.model_copy(update={"task_id": f"{task.task_id}:near", "start_urls": (world.page.url,)})


def gated(task: Task, world: WebWorld, gates: Literal["all", "oracle"]) -> int | None:
    """The oracle's actions for a task that may be trained on; None for one that cannot be done, or for nothing."""
    assert task.spec is not None
    if TEMPLATES[task.spec.template_id].leaks(task):
        return None
    played = exam.play(world, "oracle", task)
    if played.score != 1.0:
        return None
    if gates == "all":
        again = exam.play(world, "oracle", task)
        if (again.score, again.actions) != (played.score, played.actions):
            return None
        if any(exam.play(world, agent, task).score for agent in NULL_AGENTS):
            return None
    return played.actions


# A language model as generator ----------------------------------------------------------------------------------------


def generation_prompt(site: str, failed: Sequence[Task]) -> str:
    """What a generator is asked: WebRL's in-breadth evolution, in our own words."""
    listed = "\n".join(f"- `{task.intent}`" for task in failed)
    return (
        f"You write tasks that people do every day on the site {site}. Here are some that an assistant failed at:\n"
        f"{listed}\nWrite 10 new tasks for the same site. They should be about as hard, realistic and clear, of more "
        "kinds and in more ways of saying than those above. Use only names, titles, numbers and other values that "
        "stand above; invent none. Put each task between back-ticks, one a line, and add nothing else."
    )


def matched(text: str, templates: Sequence[Template]) -> list[tuple[Template, int, dict[str, str]]]:
    """Templates whose intent a text is, with the wording and what stands in its slots."""
    found = []
    for template in templates:
        for wording, intent in enumerate(template.intents):
            parts = re.split(r"\{(\w+)\}", intent)
            names = parts[1::2]
            if len(set(names)) != len(names):
                continue
            pattern = "".join(
                f"(?P<{part}>.{{1,200}}?)" if i % 2 else re.escape(part).replace(r"\ ", r"\s+")
                for i, part in enumerate(parts)
            )
            if hit := re.fullmatch(pattern, text.strip(), re.IGNORECASE):
                found.append((template, wording, hit.groupdict()))
    return found


def resolved(
    text: str, templates: Sequence[Template], contents: Sequence[int], rng: np.random.Generator
) -> Task | None:
    """The task that a generated text means, with its grader; None where no template and content say the same."""
    for template, wording, said in matched(text, templates):
        for _ in range(RESOLVES):
            content = contents[int(rng.integers(len(contents)))]
            slots = template.draw(Content(template.site, content), rng)
            if slots is not None and all(str(slots.get(name)).lower() == value.lower() for name, value in said.items()):
                task = template.task(content, slots, wording)
                return None if template.leaks(task) else task
    return None
