"""A language model as generator of tasks: its texts are matched to templates, which give them graders."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from oneiro_web.tasks import Task
from oneiro_web.templates.base import Content, Template

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


def matched(text: str, templates: Sequence[Template]) -> list[tuple[Template, int, dict[str, str]]]:
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
    for template, wording, said in matched(text, templates):
        for _ in range(RESOLVES):
            content = contents[int(rng.integers(len(contents)))]
            slots = template.draw(Content(template.site, content), rng)
            if slots is not None and all(str(slots.get(name)).lower() == value.lower() for name, value in said.items()):
                task = template.task(content, slots, wording)
                return None if template.leaks(task) else task
    return None
