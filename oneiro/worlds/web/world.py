"""The web as a world: an intent, a page as text, one action a step, a grader on the server's side.

An observation is the page in the grammar of WebArena (`view="accessibility"`) or of WebRL (`view="html"`); actions are
texts in the same grammar. Each episode has its own databases, so nothing leaks from one into the next. The grader reads
the databases and the answer; the page never tells it anything.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from oneiro.errors import OneiroError, nearest
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, in_split, level_key
from oneiro.worlds.web.actions import Action, Kind, Malformed, parse_webarena, parse_webrl, to_webarena, to_webrl
from oneiro.worlds.web.browser.base import Browser, BrowserDied, Outcome, Session
from oneiro.worlds.web.evaluation import Result, evaluate
from oneiro.worlds.web.page import Page
from oneiro.worlds.web.sites import SITES, Web
from oneiro.worlds.web.tasks import Task
from oneiro.worlds.web.templates import TEMPLATES, script_of
from oneiro.worlds.web.templates.base import Content, Slots, Template
from oneiro.worlds.web.templates.script import Lost, Script, View

CONTENTS = 64
"""Seeds of content. One in eight belongs to the evaluation split, decided by `oneiro.worlds.base.in_split`."""


@dataclass(frozen=True)
class Grammar:
    """How actions are written in one view."""

    parse: Callable[[str], Action | Malformed]
    write: Callable[[Action], str]
    clears: bool
    """Whether typing empties the field first."""
    help: str


GRAMMARS = {
    "accessibility": Grammar(
        parse_webarena,
        to_webarena,
        clears=False,
        help="click [id] (in a drop-down list: the option), hover [id], type [id] [text] [1 to press Enter, else 0], "
        "press [keys], scroll [up or down], goto [url], go_back, go_forward, new_tab, tab_focus [number], close_tab, "
        "none, stop [answer]",
    ),
    "html": Grammar(
        parse_webrl,
        to_webrl,
        clears=True,
        help='do(action="Click", element="id"), do(action="Type", argument="text", element="id"), '
        'do(action="Search", argument="text", element="id"), do(action="Select Dropdown Option", argument="option", '
        'element="id"), do(action="Hover", element="id"), do(action="Press Enter"), do(action="Scroll Down"), '
        'do(action="Scroll Up"), do(action="Wait"), go_backward(), go_forward(), exit(message="answer")',
    ),
}


class WebConfig(WorldConfig):
    """Settings of the web."""

    max_actions: int = Field(default=30, ge=1)
    view: str = "accessibility"
    """`accessibility`: WebArena's tree and actions. `html`: WebRL's."""
    browser: Literal["text", "chromium"] = "text"
    headed: bool = False
    """Show Chromium's window."""
    sites: tuple[str, ...] = ()
    """Take tasks on these sites only."""
    templates: tuple[str, ...] = ()
    """Take tasks of these templates only."""
    test: Literal["both", "seen", "unseen"] = "both"
    """In the evaluation split: templates that training has (with other content), held-out ones, or both."""
    lines: int = Field(default=0, ge=0)
    """Lines of a page that are shown at once; scrolling moves on. 0: the whole page."""
    paraphrase: bool = False
    """Draw one of the ways to say an intent, instead of the first."""


@dataclass(frozen=True)
class Level:
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


class WebWorld(World):
    """One task in a browser."""

    name = "web"
    Config = WebConfig
    views: ClassVar = tuple(GRAMMARS)
    variants: ClassVar = {
        "html": {"view": "html"},
        "chromium": {"browser": "chromium"},
        "unseen": {"test": "unseen"},
        **{site: {"sites": (site,)} for site in SITES},
    }
    oracle_is: ClassVar = "the script of the task's template"
    config: WebConfig

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.offered = chosen_templates(self.config.sites, self.config.templates)
        self.grammar = GRAMMARS[self.config.view]
        self.web: Web | None = None
        self.session: Session | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """As any world; `options["task"]` takes a `Task` as it is instead of drawing one."""
        self.begin(seed, options)
        given = (options or {}).get("task")
        if given is None:
            level, key = draw_level(self.name, self.seed, self.split, self._draw, lambda level: level.key)
            given = level.task
        else:
            key = level_key(given.model_dump_json())
        self.task: Task = given
        self.verdict: Result | None = None
        self.done_so_far: list[Action] = []
        self.retried = False
        self.notice, self.top = "", 0
        self.see = View(clears=self.grammar.clears)
        self._script: Script | None = None
        self._proposed: tuple[int, str] | None = None
        self._open()
        return self.render(), {"key": key, "template": self.task.intent_template_id, "sites": list(self.task.sites)}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.verdict is not None and self.verdict.score == 1.0)
        if self._proposed is not None and (self.taken, action) != self._proposed:
            self._script = _nothing()  # somebody else acts: the script's next line may no longer fit
        parsed = self.grammar.parse(action)
        if isinstance(parsed, Malformed):
            self.notice = parsed.reason
            return self._after(valid=False, effective=False)
        if parsed.kind is Kind.STOP:
            self._grade(parsed.text)
            return self.outcome(self.score, done=True, success=self.score == 1.0, effective=True, **self._told())
        before = self._shown()
        outcome = self._act(parsed)
        self.notice = outcome.failure or ""
        return self._after(valid=outcome.failure is None, effective=self._shown() != before)

    def render(self, view: str | None = None) -> str:
        self.view_named(view)
        notice = f"Notice: {self.notice}\n" if self.notice else ""
        return f"Task: {self.task.intent}\nURL: {self.page.url}\n{notice}{self._window(self._body(view))}"

    @property
    def instruction(self) -> str:
        return (
            "You use a web browser to fulfil a task. Each turn shows the page as text, with a number in front of what "
            "can be acted on.\n"
            f"Actions: {self.grammar.help}.\n"
            "Give the answer as short as you can; leave it empty where nothing is asked; answer N/A if the task cannot "
            f"be done. You have {self.config.max_actions} actions."
        )

    def random_action(self, rng: np.random.Generator) -> str:
        """A click on anything, or text in a field, or now and then the end with some text of the page."""
        nodes = list(self.page.nodes.values())
        node = nodes[int(rng.integers(len(nodes)))]
        words = node.name.split() or ["1"]
        word = words[int(rng.integers(len(words)))]
        draw = rng.random()
        if draw < 0.05:
            return self.grammar.write(Action(Kind.STOP, text=word))
        fields = [found for found in nodes if found.role in ("textbox", "searchbox")]
        if fields and draw < 0.25:
            chosen = fields[int(rng.integers(len(fields)))]
            typed = Action(Kind.TYPE, chosen.id, word, clear=self.grammar.clears, enter=True)
            return self.grammar.write(self._numbered(typed))
        links = [found for found in nodes if found.role in ("link", "button", "checkbox", "radio")] or [node]
        return self.grammar.write(self._numbered(Action(Kind.CLICK, links[int(rng.integers(len(links)))].id)))

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
            self._proposed = self.taken, self.grammar.write(self._numbered(proposed))
        return self._proposed[1]

    def ceiling(self) -> float | None:
        """1 as long as nobody has acted: the script solves every task. Later nobody knows."""
        return self.score if self.over else 1.0 if not self.taken else None

    def stop_action(self, answer: str) -> str:
        """The end of an episode, in the grammar of the view."""
        return self.grammar.write(Action(Kind.STOP, text=answer))

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
        if self.web is not None:
            self.web.close()
        self.session = self.web = None

    @property
    def score(self) -> float:
        """The grade; 0 before it was given."""
        return self.verdict.score if self.verdict is not None else 0.0

    def _numbered(self, action: Action) -> Action:
        """A script's action with the id that the shown view has for its element."""
        if action.element is None or self.config.view == "accessibility":
            return action
        assert self.session is not None
        number = self.session.number_of(self.page.nodes[action.element])
        return replace(action, element=number if number is not None else action.element)

    def _draw(self, rng: np.random.Generator) -> Level | None:
        template = self.offered[int(rng.integers(len(self.offered)))]
        if template.held_out if self.split == "train" else not self._tested(template):
            return None
        contents = contents_in(self.split)
        content = contents[int(rng.integers(len(contents)))]
        slots = template.draw(Content(template.site, content), rng)
        if slots is None:
            return None
        wording = int(rng.integers(len(template.intents))) if self.config.paraphrase else 0
        level = Level(template, content, slots, wording)
        return None if template.leaks(level.task) else level

    def _tested(self, template: Template) -> bool:
        return self.split is None or self.config.test == "both" or template.held_out == (self.config.test == "unseen")

    def _open(self) -> None:
        """The task's sites as they begin, in a session of their own."""
        self.close()
        self.web = Web(self.task.spec.content if self.task.spec else 0)
        log_ins = [SITES[name] for name in self.task.log_ins if name in SITES]
        cookies = {site.host: self.web.sign_in(site) for site in log_ins}
        self.session = browser(self.config.browser, self.config.headed).open(self.web, self.task.start_urls, cookies)
        self._observe()

    def _act(self, action: Action) -> Outcome:
        """Carry it out. A browser that dies is replaced once, and the episode played again up to here."""
        try:
            outcome = self._acted(action)
        except BrowserDied:
            if self.retried:
                raise
            self.retried = True
            self._open()
            for past in self.done_so_far:
                self._acted(past)
            outcome = self._acted(action)
        self.done_so_far.append(action)
        return outcome

    def _acted(self, action: Action) -> Outcome:
        assert self.session is not None
        outcome = self.session.act(action)
        url = self.page.url
        self._observe()
        if action.kind is Kind.SCROLL and self.config.lines:
            last = max(0, len(self._body().splitlines()) - self.config.lines)
            self.top = min(max(0, self.top + round(action.pages * self.config.lines)), last)
        elif self.page.url != url:
            self.top = 0
        return outcome

    def _observe(self) -> None:
        assert self.session is not None
        self.page: Page = self.session.observe()
        self.see.page = self.page
        self.body = self._text_in(self.config.view)

    def _text_in(self, view: str) -> str:
        """The page in a view. The session then understands the ids of that view."""
        assert self.session is not None
        return self.page.text() if view == "accessibility" else self.session.simplified_html()

    def _body(self, view: str | None = None) -> str:
        """The page in a view, while actions go on to mean the ids of the configured one."""
        if self.view_named(view) == self.config.view:
            return self.body
        text = self._text_in(self.view_named(view))
        self._observe()
        return text

    def _window(self, text: str) -> str:
        """The lines of a page that are in view, and how many are not."""
        lines = text.splitlines()
        if not self.config.lines or len(lines) <= self.config.lines:
            return text
        below = len(lines) - self.top - self.config.lines
        shown = lines[self.top : self.top + self.config.lines]
        before = [f"({self.top} lines above)"] if self.top else []
        return "\n".join([*before, *shown, *([f"({below} lines below)"] if below > 0 else [])])

    def _shown(self) -> tuple[str, int, str]:
        return self.page.url, self.top, self.body

    def _after(self, *, valid: bool, effective: bool) -> Step:
        """The step's result; the last one that the budget allows is graded as it stands, without an answer."""
        if self.remaining > 1:
            return self.outcome(0.0, valid=valid, effective=effective)
        self._grade(None)
        return self.outcome(self.score, success=self.score == 1.0, valid=valid, effective=effective, **self._told())

    def _grade(self, answer: str | None) -> None:
        assert self.session is not None and self.web is not None
        self.verdict = evaluate(self.task, self.session, answer, web=self.web)

    def _told(self) -> dict[str, Any]:
        assert self.verdict is not None
        return {"score": self.score, "failed": [check.reason for check in self.verdict.checks if check.score < 1]}


def _nothing() -> Script:
    return
    yield


@cache
def contents_in(split: str | None) -> tuple[int, ...]:
    """The seeds of content of a split."""
    found = tuple(content for content in range(CONTENTS) if in_split(level_key(f"web content {content}"), split))
    assert found
    return found


@cache
def chosen_templates(sites: tuple[str, ...], names: tuple[str, ...]) -> tuple[Template, ...]:
    """The templates that settings leave."""
    for site in sites:
        if site not in SITES:
            raise OneiroError(f"no site is called '{site}'{nearest(site, SITES)}")
    for name in names:
        if name not in TEMPLATES:
            raise OneiroError(f"no template is called '{name}'{nearest(name, TEMPLATES)}")
    found = tuple(
        template
        for template in TEMPLATES.values()
        if (not sites or template.site in sites) and (not names or template.name in names)
    )
    if not found:
        raise OneiroError("these sites have none of these templates")
    return found


@cache
def browser(name: str, headed: bool = False) -> Browser:
    """The browser of this process; it is closed when the process ends."""
    found: Browser
    if name == "text":
        from oneiro.worlds.web.browser.text import TextBrowser

        found = TextBrowser()
    else:
        from oneiro.worlds.web.browser.chromium import ChromiumBrowser

        found = ChromiumBrowser(headed=headed)
    atexit.register(found.close)
    return found
