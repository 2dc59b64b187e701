"""One task out of another, and what a task must pass before it may be trained on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from oneiro_web import validate
from oneiro_web.env import contents_in, intent_in
from oneiro_web.plugin import WebWorld
from oneiro_web.tasks import Task
from oneiro_web.templates.base import Content, Template
from oneiro_web.templates.registry import template_of

NULL_AGENTS = ("idle", "exit", "na", "random-answer")
"""Agents that do not do a task; none may score on it."""
DRAWS = 20
"""Attempts to draw a task of a template."""


def within(value: float, band: tuple[float, float]) -> bool:
    """Both ends belong to it."""
    return band[0] <= value <= band[1]


def task_key(task: Task) -> str:
    """What makes two tasks one: the same site, content and intent, whatever the case and spaces; or the same slots."""
    words = re.sub(r"\W+", " ", task.intent.lower()).strip()
    content = task.spec.content if task.spec is not None else 0
    start = task.start_urls[0] if task.start_urls else ""
    return hashlib.blake2b(json.dumps([task.sites, content, words, start]).encode(), digest_size=8).hexdigest()


def draw_task(template: Template, rng: np.random.Generator, wordings: int | None = None) -> Task | None:
    """A task of a template on training content, with an intent that no test has, whose answer does not stand on its
    first page.
    """
    contents = contents_in("train")
    for _ in range(DRAWS):
        content = contents[int(rng.integers(len(contents)))]
        slots = template.draw(Content(template.site, content), rng)
        if slots is None:
            continue
        task = template.task(content, slots, int(rng.integers(len(template.intents[:wordings]))))
        if intent_in(task.intent, "train") and not template.leaks(task):
            return task
    return None


def is_sibling(one: Template, other: Template) -> bool:
    """Another template of the same site with a skill in common."""
    return one.name != other.name and one.site == other.site and bool(set(one.skills) & set(other.skills))


def paraphrase(task: Task, rng: np.random.Generator) -> Task | None:
    """The same task in other words."""
    assert task.spec is not None
    template = template_of(task)
    made = [template.task(task.spec.content, task.spec.slots, wording) for wording in range(len(template.intents))]
    others = [other for other in made if other.intent != task.intent]
    return others[int(rng.integers(len(others)))] if others else None


def move_nearer(task: Task, world: WebWorld) -> Task | None:
    """The same task from the next page on the oracle's way; None where that page is the last.

    The script of a template begins on its own first page, so the new task carries the rest of the way as `solution`.
    """
    world.reset(seed=0, options={"task": task})
    first, second, rest = world.page.url, "", list[str]()
    while not world.over and (action := world.oracle()) is not None:
        if second:
            rest.append(action)
        world.step(action)
        if not second and world.page.url != first:
            second = world.page.url
    if not second or second in task.start_urls or len(rest) < 2:
        return None
    made = task.model_dump() | {"task_id": f"{task.task_id}:near", "start_urls": (second,), "solution": rest}
    return Task.model_validate(made)


def play_solution(task: Task, world: WebWorld) -> validate.Played:
    """The task played by its `solution`, where it carries one, else by the oracle."""
    solution = (task.model_extra or {}).get("solution")
    if solution is None:
        return validate.play(world, "oracle", task)
    world.reset(seed=0, options={"task": task})
    for action in solution:
        if not world.over:
            world.step(action)
    return validate.Played(task, world.score, world.taken, ())


def pass_gates(task: Task, world: WebWorld, gates: Literal["all", "oracle"]) -> int | None:
    """The oracle's actions for a task that may be trained on; None for one that cannot be done, or for nothing."""
    if template_of(task).leaks(task):
        return None
    played = play_solution(task, world)
    if played.score != 1.0:
        return None
    if gates == "all":
        again = play_solution(task, world)
        if (again.score, again.actions) != (played.score, played.actions):
            return None
        if any(validate.play(world, agent, task).score for agent in NULL_AGENTS):
            return None
    return played.actions


RESOLVES = 300
"""Attempts to find the content that a generated text speaks of."""
BACKTICKED = re.compile(r"`([^`\n]{3,400})`")


def generation_prompt(site: str, failed: Sequence[Task]) -> str:
    """What a generator is asked: WebRL's in-breadth evolution, in our own words."""
    listed = "\n".join(f"- `{task.intent}`" for task in failed)
    return (
        f"You write tasks that people do every day on the site {site}. Here are some that an assistant failed at:\n"
        f"{listed}\nWrite 10 new tasks for the same site. They should be about as hard, realistic and clear, of more "
        "kinds and in more ways of saying than those above. Use only names, titles, numbers and other values that "
        "stand above; invent none. Put each task between back-ticks, one a line, and add nothing else."
    )


def match_templates(text: str, templates: Sequence[Template]) -> list[tuple[Template, int, dict[str, str]]]:
    """Templates whose intent a text is, with the wording and what stands in its slots."""
    hits = []
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
                hits.append((template, wording, hit.groupdict()))
    return hits


def resolve(text: str, templates: Sequence[Template], contents: Sequence[int], rng: np.random.Generator) -> Task | None:
    """The task that a generated text means, with its grader; None where no template and content say the same."""
    for template, wording, texts in match_templates(text, templates):
        for _ in range(RESOLVES):
            content = contents[int(rng.integers(len(contents)))]
            slots = template.draw(Content(template.site, content), rng)
            if slots is not None and all(
                str(slots.get(name)).lower() == value.lower() for name, value in texts.items()
            ):
                task = template.task(content, slots, wording)
                return None if template.leaks(task) else task
    return None
