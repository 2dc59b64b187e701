"""Our tasks, played by scripted agents: the oracle must score 1 on each, and whoever does not do the task 0.

rows = examine("oracle", list(template_tasks(2)), WebConfig(browser="chromium"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from oneiro_web.actions import Malformed, parse_webarena
from oneiro_web.base import level_key
from oneiro_web.cheaters import CHEATERS
from oneiro_web.env import WebConfig, WebEnv, contents_in
from oneiro_web.errors import WebError, nearest
from oneiro_web.seeds import generator
from oneiro_web.tasks import Task
from oneiro_web.templates.base import Content, Template
from oneiro_web.templates.registry import TEMPLATES

AGENTS = ("oracle", "random", *CHEATERS)
"""Who can be asked to play."""
DRAWS = 200
"""Attempts to draw a task of a template before it is said to have none."""


@dataclass(frozen=True)
class Played:
    """One task and how it went."""

    task: Task
    score: float
    actions: int
    reasons: tuple[str, ...]
    """What the checks said."""

    @property
    def template(self) -> str:
        """The template it is of."""
        return str(self.task.intent_template_id)


def template_tasks(each: int, sites: Sequence[str] = (), seed: int = 0) -> Iterator[Task]:
    """`each` tasks of every template, on contents of both splits."""
    for template in TEMPLATES.values():
        if not sites or template.site in sites:
            for number in range(each):
                yield drawn_task(template, seed, number)


def drawn_task(template: Template, seed: int, number: int) -> Task:
    """The task of this number."""
    contents = contents_in("eval" if number % 2 or template.held_out else "train")
    for attempt in range(DRAWS):
        rng = generator("web", "exam", seed, template.name, number, attempt)
        content = contents[int(rng.integers(len(contents)))]
        slots = template.draw(Content(template.site, content), rng)
        if slots is not None:
            task = template.task(content, slots, number % len(template.intents))
            if not template.leaks(task):
                return task
    raise WebError(f"template {template.name}: no task in {DRAWS} draws")


def known_agent(name: str) -> str:
    """The name, if somebody is called so."""
    if name not in AGENTS:
        raise WebError(f"no agent is called '{name}'{nearest(name, AGENTS)}")
    return name


def examine(
    agent: str,
    tasks: Sequence[Task],
    config: WebConfig | None = None,
    done: Callable[[Played], None] | None = None,
) -> list[Played]:
    """Every task, played by a scripted agent."""
    known_agent(agent)
    world = WebEnv(config)
    rows = []
    try:
        for task in tasks:
            rows.append(play(world, agent, task))
            if done is not None:
                done(rows[-1])
    finally:
        world.close()
    return rows


def play(world: WebEnv, agent: str, task: Task) -> Played:
    """One task from its first page to its grade."""
    observation, _ = world.reset(seed=0, options={"task": task})
    rng = generator("web", "exam", agent, level_key(str(task.task_id)))
    cheater = CHEATERS[agent](rng) if agent in CHEATERS else None
    while not world.over:
        if cheater is not None:
            action = in_grammar(world, cheater.act(observation, task.intent, world.taken))
        elif agent == "oracle":
            action = world.oracle() or world.stop_action("")
        else:
            action = world.random_action(rng)
        observation, *_ = world.step(action)
    reasons = tuple(f"{check.name}: {check.reason}" for check in world.verdict.checks) if world.verdict else ()
    return Played(task, world.score, world.taken, reasons)


def in_grammar(world: WebEnv, text: str) -> str:
    """A cheater's action, written as WebArena's, in the grammar of the view; as it is where that cannot say it."""
    parsed = parse_webarena(text)
    if isinstance(parsed, Malformed):
        return text
    try:
        return world.grammar.write(parsed)
    except WebError:
        return text
