"""The web as a world: an intent, a page as text, one action a step, a grader on the server's side.

An observation is the page in the grammar of WebArena (`view="accessibility"`) or of WebRL (`view="html"`); actions are
texts in the same grammar. Each episode has its own databases, so nothing leaks from one into the next. The grader reads
the databases and the answer; the page never tells it anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from oneiro_web.actions import Action, Kind
from oneiro_web.base import EnvConfig, Step, draw_level, in_split, level_key
from oneiro_web.benchmarks.webarena import RemoteWeb
from oneiro_web.browsers.base import Browser
from oneiro_web.browsing import BrowserConfig, BrowserEnv
from oneiro_web.errors import WebError, nearest
from oneiro_web.grading import Result, evaluate
from oneiro_web.page import Page
from oneiro_web.sites import SITES, Web
from oneiro_web.tasks import Task, load_tasks
from oneiro_web.templates.base import Content, Slots, Template
from oneiro_web.templates.registry import TEMPLATES, composed_templates, script_of, template_named
from oneiro_web.templates.script import Lost, Script, View
from oneiro_web.traffic import TrafficWeb
from oneiro_web.urls import Places

TRAINED_CONTENTS, TESTED_CONTENTS = 64, 48
"""Seeds of content in each split. What an interval over tests means depends on how many contents stand behind them."""


TemplateKind = Literal["written", "composed", "both"]


class WebConfig(BrowserConfig):
    """Settings of the web."""

    sites: tuple[str, ...] = ()
    """Take tasks on these sites only."""
    templates: tuple[str, ...] = ()
    """Take tasks of these templates only, of whichever kind."""
    kind: TemplateKind = "written"
    """Templates written by hand, those composed from the sites' schemas (verbs x entities x filters), or both."""
    test: Literal["both", "seen", "unseen"] = "both"
    """In the evaluation split: templates that training has (with other content), held-out ones, or both."""
    paraphrase: bool = False
    """Draw one of the ways to say an intent, instead of the first."""
    task_file: str = ""
    """Take the tasks of this file (WebArena's format) instead of our own."""
    base_urls: dict[str, str] = Field(default_factory=dict)
    """Site -> where it is served, such as WebArena's containers, instead of our own sites. Nobody resets those."""
    storage: str = ""
    """With `base_urls`: the folder of storage states (`shopping_state.json`), one for each site with a log-in."""
    evaluators: Literal["webarena", "lite", "rlvr"] = "webarena"
    """Whose graders a task file is graded by."""


@dataclass(frozen=True)
class WebLevel:
    """One task on one content."""

    template: Template
    content: int
    slots: Slots
    wording: int = 0

    @property
    def key(self) -> str:
        """Tasks on one content share a split."""
        text = json.dumps([self.template.name, self.content, self.slots, self.wording], sort_keys=True)
        return level_key(f"web {text}", f"web content {self.content}")

    @property
    def task(self) -> Task:
        """The task with its checks."""
        return self.template.task(self.content, self.slots, self.wording)


class WebEnv(BrowserEnv):
    """One task in a browser."""

    name = "web"
    Config = WebConfig
    config: WebConfig

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        self.offered = chosen_templates(self.config.sites, self.config.templates, self.config.kind)
        self.web: Web | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """As any world; `options["task"]` takes a `Task` as it is instead of drawing one."""
        self.begin(seed, options)
        given: Task | None = (options or {}).get("task")
        self.task, key = self._draw_task() if given is None else (given, level_key(given.model_dump_json()))
        self.verdict: Result | None = None
        self.see = View(clears=self.grammar.clears)
        self._script: Script | None = None
        self._proposed: tuple[int, str] | None = None
        self.start()
        return self.render(), {"key": key, "template": self.task.intent_template_id, "sites": list(self.task.sites)}

    def step(self, action: str) -> Step:
        read = self._read(action)
        if not isinstance(read, Action):
            return read
        valid, effective = self.carry_out(read)
        return self._after(valid=valid, effective=effective)

    @staticmethod
    def step_many(worlds: Sequence[WebEnv], actions: Sequence[str]) -> list[Step | Exception]:
        """The same in many worlds; pages load at once in browsers that wait."""
        results: list[Any] = [caught(world._read, action) for world, action in zip(worlds, actions, strict=True)]
        waiting: dict[Browser, list[int]] = {}
        for place, read in enumerate(results):
            if isinstance(read, Action):
                waiting.setdefault(worlds[place].browser, []).append(place)
        for places in waiting.values():
            done = BrowserEnv.carry_out_many([worlds[i] for i in places], [results[i] for i in places])
            for place, result in zip(places, done, strict=True):
                if isinstance(result, Exception):
                    results[place] = result
                else:
                    after = partial(worlds[place]._after, valid=result[0], effective=result[1])
                    results[place] = caught(after)
        return results

    def _read(self, action: str) -> Step | Action:
        """What is to be done in the browser; the step's result where that is nothing."""
        if self.over:
            return self.ended(success=self.verdict is not None and self.verdict.score == 1.0)
        if self._proposed is not None and (self.taken, action) != self._proposed:
            self._script = _nothing()  # somebody else acts: the script's next line may no longer fit
        parsed = self.parse(action)
        if parsed is None:
            return self._after(valid=False, effective=False)
        if parsed.kind is Kind.STOP:
            self._grade(parsed.text)
            return self.outcome(self.score, done=True, success=self.score == 1.0, effective=True, **self._explain())
        return parsed

    @property
    def intent(self) -> str:
        return self.task.intent

    @property
    def instruction(self) -> str:
        return (
            "You use a web browser to fulfil a task. Each turn shows the page as text, with a number in front of what "
            "can be acted on.\n"
            f"Actions: {self.grammar.help}.\n"
            "Give the answer as short as you can; leave it empty where nothing is asked; answer N/A if the task cannot "
            f"be done. You have {self.config.max_actions} actions."
        )

    def oracle(self) -> str | None:
        if self.over:
            return None
        if self._proposed is None or self._proposed[0] != self.taken:
            if self._script is None:
                self._script = script_of(self.task, self.see)
            try:
                proposed = next(self._script, None)
            except Lost:
                proposed = None
            if proposed is None:
                return None
            self._proposed = self.taken, self.grammar.write(self._renumber(proposed))
        return self._proposed[1]

    def ceiling(self) -> float | None:
        """1 as long as nobody has acted: the script solves every task. Later nobody knows."""
        return self.score if self.over else 1.0 if not self.taken else None

    def close(self) -> None:
        super().close()
        if self.web is not None:
            self.web.close()
        self.web = None

    @property
    def score(self) -> float:
        """The grade; 0 before it was given."""
        return self.verdict.score if self.verdict is not None else 0.0

    def _draw_task(self) -> tuple[Task, str]:
        """A task of this seed, with its key."""
        if self.config.task_file:
            return draw_level(self.name, self.seed, self.split, self._draw_from_file, file_key)
        level, key = draw_level(self.name, self.seed, self.split, self._draw, lambda level: level.key)
        return level.task, key

    def _draw(self, rng: np.random.Generator) -> WebLevel | None:
        template = self.offered[int(rng.integers(len(self.offered)))]
        if template.held_out if self.split == "train" else not self._is_tested(template):
            return None
        contents = contents_in(self.split)
        content = contents[int(rng.integers(len(contents)))]
        slots = template.draw(Content(template.site, content), rng)
        if slots is None:
            return None
        wording = int(rng.integers(len(template.intents))) if self.config.paraphrase else 0
        level = WebLevel(template, content, slots, wording)
        if not template.held_out and not intent_in(level.task.intent, self.split):
            return None
        return None if template.leaks(level.task) else level

    def _draw_from_file(self, rng: np.random.Generator) -> Task:
        tasks = file_tasks(self.config.task_file, self.config.sites)
        return tasks[int(rng.integers(len(tasks)))]

    def _is_tested(self, template: Template) -> bool:
        return self.split is None or self.config.test == "both" or template.held_out == (self.config.test == "unseen")

    def _open(self) -> None:
        """The task's sites as they begin, in a session of their own."""
        self.close()
        self.web = self._web()
        log_ins = [SITES[name] for name in self.task.log_ins if name in SITES]
        cookies = {site.host: self.web.sign_in(site) for site in log_ins}
        self.session = self.browser.open(self.web, self.task.start_urls, cookies)
        self._observe()

    def _web(self) -> Web:
        if self.config.base_urls:
            storage = Path(self.config.storage) if self.config.storage else None
            web: Web = RemoteWeb(Places(self.config.base_urls), storage)
        else:
            web = Web(self.task.spec.content if self.task.spec else 0)
        return TrafficWeb(web) if isinstance(self.task.eval, tuple) else web

    def _observe(self, page: Page | None = None) -> None:
        super()._observe(page)
        self.see.page = self.page

    def _after(self, *, valid: bool, effective: bool) -> Step:
        """The step's result; the last one that the budget allows is graded as it stands, without an answer."""
        if self.remaining > 1:
            return self.outcome(0.0, valid=valid, effective=effective)
        self._grade(None)
        return self.outcome(self.score, success=self.score == 1.0, valid=valid, effective=effective, **self._explain())

    def _grade(self, answer: str | None) -> None:
        assert self.session is not None and self.web is not None
        self.verdict = evaluate(self.task, self.session, answer, web=self.web, variant=self.config.evaluators)

    def _explain(self) -> dict[str, Any]:
        assert self.verdict is not None
        return {"score": self.score, "failed": [check.reason for check in self.verdict.checks if check.score < 1]}


def caught(work: Callable[..., Any], *given: Any) -> Any:
    """What work gives, or the exception it raised: one episode that fails must not end those beside it."""
    try:
        return work(*given)
    except Exception as error:
        return error


def _nothing() -> Script:
    return
    yield


def file_key(task: Task) -> str:
    """Tasks of one template share a split."""
    return level_key(f"web task {task.task_id}", f"web template {task.intent_template_id or task.intent}")


@cache
def file_tasks(path: str, sites: tuple[str, ...]) -> tuple[Task, ...]:
    """The tasks of a file that need no other sites than these."""
    tasks = tuple(task for task in load_tasks(Path(path)) if not sites or set(task.sites) <= set(sites))
    if not tasks:
        raise WebError(f"{path} has no task on {', '.join(sites)}")
    return tasks


@cache
def contents_in(split: str | None) -> tuple[int, ...]:
    """The seeds of content of a split; without one, of both."""
    if split is None:
        return tuple(sorted((*contents_in("train"), *contents_in("eval"))))
    own = (content for content in count() if in_split(level_key(f"web content {content}"), split))
    return tuple(islice(own, TESTED_CONTENTS if split == "eval" else TRAINED_CONTENTS))


def intent_in(intent: str, split: str | None) -> bool:
    """Whether tasks of a split may have this intent: half of all intents are trained on and half are tested, so that no
    test asks for what training asked for, whatever the content. Templates that are held out need no such rule.
    """
    words = re.sub(r"\W+", " ", intent.lower()).strip()
    tested = int(level_key(f"web intent {words}")[-1], 16) % 2 == 0
    return split is None or tested == (split == "eval")


@cache
def chosen_templates(
    sites: tuple[str, ...], names: tuple[str, ...], kind: TemplateKind = "written"
) -> tuple[Template, ...]:
    """The templates that settings leave: those of a kind, or those that are named."""
    for site in sites:
        if site not in SITES:
            raise WebError(f"no site is called '{site}'{nearest(site, SITES)}")
    named = [template_named(name) for name in names]
    for name, template in zip(names, named, strict=True):
        if template is None:
            raise WebError(f"no template is called '{name}'{nearest(name, [*TEMPLATES, *composed_templates()])}")
    of_kind = [*(TEMPLATES if kind != "composed" else {}).values()]
    of_kind += composed_templates().values() if kind != "written" and not names else ()
    templates = [template for template in (named if names else of_kind) if template is not None]
    templates = [template for template in templates if not sites or template.site in sites]
    if not templates:
        raise WebError("these sites have none of these templates")
    return tuple(templates)
