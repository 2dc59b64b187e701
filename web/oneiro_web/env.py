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
from functools import cache, cached_property, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from oneiro_web.actions import Action, Kind
from oneiro_web.base import EnvConfig, Step, draw_level, in_split, level_key
from oneiro_web.benchmarks.webarena import SHOP_HELPERS, RemoteWeb, reset_sites
from oneiro_web.browsers.base import Browser
from oneiro_web.browsing import BrowserConfig, BrowserEnv
from oneiro_web.errors import WebError, nearest
from oneiro_web.grading import Result, evaluate, require_supported
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


SHORT_ANSWER = (
    "Give the answer as short as you can; leave it empty where nothing is asked; answer N/A if the task cannot be done."
)
VERIFIED_ANSWER = (
    'Answer with a JSON object: {"task_type": "RETRIEVE", "MUTATE" or "NAVIGATE", "status": "SUCCESS", '
    '"NOT_FOUND_ERROR", "ACTION_NOT_ALLOWED_ERROR" or "PERMISSION_DENIED_ERROR", "retrieved_data": a list, or null '
    "where nothing is asked}."
)
"""What WebArena-Verified grades."""
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
    """Take the tasks of this file (WebArena's format) instead of our own; seeds count through them."""
    file_split: Literal["none", "templates"] = "none"
    """`none`: the file is a test, played whole and never trained on. `templates`: one template in eight is tested, the
    others are trained on.
    """
    base_urls: dict[str, str] = Field(default_factory=dict)
    """Site -> where it is served, such as WebArena's containers, instead of our own sites."""
    backends: tuple[str, ...] = ()
    """With `base_urls`: more addresses that their pages ask, such as the map's routing servers."""
    storage: str = ""
    """With `base_urls`: the folder of storage states (`shopping_state.json`), one for each site with a log-in."""
    reset_command: str = ""
    """With `base_urls`: run before each episode, with the names of the task's sites behind it. It may reset the sites
    and renew the log-ins. Without it, what one episode changes, the next one finds.
    """
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

    @cached_property
    def task(self) -> Task:
        """The task with its checks; a draw asks for it several times."""
        return self.template.task(self.content, self.slots, self.wording)


class WebEnv(BrowserEnv):
    """One task in a browser."""

    name = "web"
    Config = WebConfig
    config: WebConfig

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        self.tasks: tuple[Task, ...] = ()
        self.offered: tuple[Template, ...] = ()
        if self.config.task_file:
            self.tasks = file_tasks(self.config.task_file, self.config.sites, tuple(self.config.base_urls))
        else:
            self.offered = chosen_templates(self.config.sites, self.config.templates, self.config.kind)
        self.web: Web | None = None
        self.shared = bool(self.config.base_urls)
        """Episodes change what is not theirs alone, so nobody should play unasked."""

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

    def peek(self, seed: int, split: str | None) -> dict[str, Any]:
        """What `reset` would say of the level, without opening a page."""
        self.begin(seed, {"split": split})
        self._over = None
        return {"key": self._draw_task()[1]}

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
            f"{VERIFIED_ANSWER if self.tasks and isinstance(self.tasks[0].eval, tuple) else SHORT_ANSWER} "
            f"You have {self.config.max_actions} actions."
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
        """1 as long as nobody has acted: the script solves every task of our own. Later, or of others, nobody knows."""
        return self.score if self.over else 1.0 if not self.taken and self.task.spec else None

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
            return self._pick_task()
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

    def _pick_task(self) -> tuple[Task, str]:
        """Task number `seed` of those in the split, round and round."""
        if self.config.file_split == "none" and self.split == "train":
            raise WebError("task_file is a test; to train on it say file_split=templates, and one in eight is tested")
        split = self.split if self.config.file_split == "templates" else None
        tasks = [task for task in self.tasks if in_split(file_key(task), split)] if split else self.tasks
        if not tasks:
            raise WebError(f"{self.config.task_file} has no template in split '{split}'; say file_split=none")
        task = tasks[self.seed % len(tasks)]
        return task, file_key(task)

    def _is_tested(self, template: Template) -> bool:
        return self.split is None or self.config.test == "both" or template.held_out == (self.config.test == "unseen")

    def _open(self) -> None:
        """The task's sites as they begin, in a session of their own."""
        self.close()
        if self.config.reset_command:
            reset_sites(self.config.reset_command, self.task.sites)
        self.web = self._web()
        log_ins = [SITES[name] for name in self.task.log_ins if name in SITES]
        cookies = {site.host: self.web.sign_in(site) for site in log_ins}
        self.session = self.browser.open(self.web, self.task.start_urls, cookies)
        self._observe()

    def _web(self) -> Web:
        if self.config.base_urls:
            storage = Path(self.config.storage) if self.config.storage else None
            self.remote = RemoteWeb(Places(self.config.base_urls), storage, self.config.backends)
            web: Web = self.remote
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
        helpers = self.remote.helpers() if self.config.base_urls else None
        self.verdict = evaluate(
            self.task, self.session, answer, web=self.web, variant=self.config.evaluators, helpers=helpers
        )

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
def file_tasks(path: str, sites: tuple[str, ...], served: tuple[str, ...] = ()) -> tuple[Task, ...]:
    """The tasks of a file that need no other sites than these. `served` are the sites with an address, if not ours."""
    tasks = tuple(task for task in load_tasks(Path(path)) if not sites or set(task.sites) <= set(sites))
    if not tasks:
        raise WebError(f"{path} has no task on {', '.join(sites)}")
    for task in tasks:
        require_supported(task, path, SHOP_HELPERS if served else ())
    missing = {site for task in tasks for site in task.sites} - {*(served or SITES)}
    if missing:
        add = "give its address in base_urls" if served else "our own sites lack it: give addresses in base_urls"
        raise WebError(f"{path} has tasks on {sorted(missing)[0]}; {add}, or say which sites=[...] to take")
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
