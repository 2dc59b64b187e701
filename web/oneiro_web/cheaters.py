"""Scripted agents that do not do the task: none of them may score on any task.

Some go for the exploits known from web benchmarks, some do nothing, some guess. Each needs what an agent sees and
nothing else: the page's accessibility text and the intent. They write WebArena's grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oneiro_web.urls import PUBLIC


class ScriptedAgent(Protocol):
    """Acts on one episode."""

    def act(self, page: str, intent: str, step: int) -> str:
        """The text of the next action."""


_LINE = re.compile(r"\[(\d+)\] (\w+) (?:'([^'\n]*)'|\"([^\"\n]*)\")")
_LEAKED = re.compile(
    r"(?:exact_match|must_include|fuzzy_match|reference_answers|retrieved_data)\W+(\w[^\"'\]}\n]{0,200})"
)


def _elements(page: str, *roles: str) -> list[int]:
    return [int(match[1]) for match in _LINE.finditer(page) if not roles or match[2] in roles]


def _names(page: str) -> list[str]:
    return [name for match in _LINE.finditer(page) if (name := (match[3] or match[4] or "").strip())]


@dataclass(frozen=True)
class Visitor:
    """Opens addresses that no agent should reach, and answers with whatever looks like a solution there."""

    addresses: Sequence[str]

    def act(self, page: str, intent: str, step: int) -> str:
        leaked = _LEAKED.search(page) if step else None
        if leaked is None and step < len(self.addresses):
            return f"goto [{self.addresses[step]}]"
        return f"stop [{leaked[1] if leaked else ' '.join(_names(page)[:20])}]"


def cheat_file() -> ScriptedAgent:
    """Reads files: task configs under the paths of known runners, the file system itself."""
    files = (
        "", "proc/self/cwd/", "config_files/0.json", "proc/self/cwd/config_files/test.raw.json", "tasks.json",
        "proc/self/cwd/tasks.json", "etc/hostname",
    )  # fmt: skip
    spellings = ("view-source:file:///", "file://localhost/", "FILE:///", "http:file:///", "file:\\\\\\")
    return Visitor([*(f"file:///{file}" for file in files), *spellings])


def cheat_grader() -> ScriptedAgent:
    """Looks for graders, their state and their reset on the sites and on the machine."""
    paths = (
        "/api/state", "/api/tasks", "/api/evaluate", "/grader", "/__grader__", "/_state", "/evaluate?task=0", "/reset",
        "/solution", "/rest/V1/orders", "/api/v4/users", "/admin/api", "/debug", "/static/../tasks.json",
        "/static/%2e%2e/tasks.json",
    )  # fmt: skip
    hosts = list(PUBLIC.values())[:5]
    machine = (
        "http://localhost:9222/json", "http://127.0.0.1:8000/", "http://2130706433/", "http://[::1]/", "http://0/",
        "http://localhost./api/state", "http://reddit.com@127.0.0.1/", "http://reddit.com:9222/json", "about:version",
        "chrome://settings", "devtools://devtools",
    )  # fmt: skip
    return Visitor(
        [*machine, *(hosts[number % len(hosts)].removesuffix("/admin") + path for number, path in enumerate(paths))]
    )


@dataclass(frozen=True)
class StateWriter:
    """Tries to write a site's state past its pages."""

    attempts: Sequence[str]
    """Addresses, or texts for the fields of the page where they are no addresses."""

    def act(self, page: str, intent: str, step: int) -> str:
        if step >= len(self.attempts):
            return "stop [done]"
        attempt = self.attempts[step]
        if re.match(r"[a-z-]+:", attempt):
            return f"goto [{attempt}]"
        fields = _elements(page, "textbox", "searchbox")
        return f"type [{fields[0]}] [{attempt}] [1]" if fields else "scroll [down]"


def cheat_state() -> ScriptedAgent:
    """Writes through scripts, odd methods and injected text."""
    shop, forum, project = (PUBLIC[site] for site in ("shopping", "reddit", "gitlab"))
    return StateWriter([
        "javascript:fetch('/api/state',{method:'PUT',body:'{\"done\":true}'})",
        "javascript:document.forms[0].submit()",
        "data:text/html,<form method=post action=" + shop + "/cart><input name=product value=1></form>"
        "<script>document.forms[0].submit()</script>",
        f"{shop}/cart?_method=POST&product=1&qty=1",
        f"{shop}/api/state?set=done",
        f"{forum}/submit?_method=PUT&title=x&body=y",
        f"{project}/api/v4/projects?name=x&_method=POST",
        "'; UPDATE session SET user = 'admin'; --",
        "<script>fetch('/',{method:'POST'})</script>",
        "{{ visit.change('DELETE FROM orders') }}",
    ])  # fmt: skip


@dataclass(frozen=True)
class PromptReader:
    """Answers with words of the task itself."""

    way: int
    """All of it, what is quoted, what is capitalised, or its figures."""

    def act(self, page: str, intent: str, step: int) -> str:
        quoted = [one or other for one, other in re.findall(r"\"([^\"]+)\"|'([^']+)'", intent)]
        capitals = re.findall(r"\b[A-Z][\w'-]*(?: [A-Z][\w'-]*)*", intent)
        figures = re.findall(r"\d[\d,.]*", intent)
        answers = (intent, ", ".join(quoted) or intent, ", ".join(capitals[1:] or capitals), " ".join(figures) or "0")
        return f"stop [{answers[self.way % len(answers)]}]"


@dataclass(frozen=True)
class Always:
    """Does one thing for ever."""

    action: str

    def act(self, page: str, intent: str, step: int) -> str:
        return self.action


@dataclass
class Guesser:
    """Stops at once with a random value of the type that the task seems to ask for, a common one where there are such:
    small numbers, as many as are asked for, and short times.
    """

    random: np.random.Generator

    def act(self, page: str, intent: str, step: int) -> str:
        return f"stop [{self.guess(page, intent)}]"

    def small(self) -> int:
        """1 to 6, the smaller the likelier."""
        return int(min(self.random.integers(1, 7, size=2)))

    def guess(self, page: str, intent: str) -> str:
        """A value by the words of the question; a name is one that is on the page."""
        asked, pick = intent.lower(), self.random.integers
        more = re.search(r"answer with (two|three) numbers", asked)
        if more:
            return ", ".join(str(self.small()) for _ in range(2 if more[1] == "two" else 3))
        if re.search(r"how many|number of|count", asked):
            return str(self.small() if pick(0, 2) else pick(0, 50))
        if re.search(r"how much|price|cost|total|spen[dt]|\$", asked):
            return f"${pick(1, 500)}.{pick(0, 100):02d}"
        if re.search(r"how long|duration|travel time|minutes", asked):
            return f"{self.small()} min" if pick(0, 2) else f"{pick(0, 5)}h {pick(0, 60)}min"
        if re.search(r"how far|distance", asked):
            return f"{pick(1, 200) / 10}km"
        if re.search(r"\bwhen\b|\bdate\b", asked):
            return f"{pick(2022, 2027)}-{pick(1, 13):02d}-{pick(1, 29):02d}"
        if re.match(r"(is|are|does|do|did|has|have|can|was|were)\b", asked):
            return ("yes", "no")[pick(0, 2)]
        names = _names(page)
        return names[pick(0, len(names))] if names else "yes"


CHEATERS: dict[str, Callable[[np.random.Generator], ScriptedAgent]] = {
    "cheat-file": lambda random: cheat_file(),
    "cheat-grader": lambda random: cheat_grader(),
    "cheat-state": lambda random: cheat_state(),
    "cheat-prompt": lambda random: PromptReader(int(random.integers(4))),
    "na": lambda random: Always("stop [N/A]"),
    "exit": lambda random: Always("stop []"),
    "idle": lambda random: Always("none"),
    "random-answer": Guesser,
}
"""By name: from a generator to an agent for one episode."""
