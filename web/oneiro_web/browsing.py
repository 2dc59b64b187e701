"""An environment that is played in a browser: a page as text, one action a step, in the grammar of a view."""

from __future__ import annotations

import atexit
import base64
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from oneiro_web.actions import Action, Kind, Malformed, parse_webarena, to_webarena
from oneiro_web.aria import snapshot
from oneiro_web.base import EnvConfig, Step, TextEnv
from oneiro_web.browsers.base import Browser, BrowserDied, Outcome, Session
from oneiro_web.page import Page
from oneiro_web.webrl_actions import parse_webrl, to_webrl


@dataclass(frozen=True)
class Grammar:
    """How actions are written in one view."""

    parse: Callable[[str], Action | Malformed]
    write: Callable[[Action], str]
    clears: bool
    """Whether typing empties the field first."""
    help: str


WEBARENA = Grammar(
    parse_webarena,
    to_webarena,
    clears=False,
    help="click [id] (in a drop-down list: the option), hover [id], type [id] [text] [1 to press Enter, else 0], "
    "press [keys], scroll [up or down], goto [url], go_back, go_forward, new_tab, tab_focus [number], close_tab, "
    "none, stop [answer]",
)
GRAMMARS = {
    "accessibility": WEBARENA,
    "aria": replace(WEBARENA, help=f"{WEBARENA.help}; the id of an element is the number of its ref"),
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


class BrowserConfig(EnvConfig):
    """Settings of every environment in a browser."""

    max_actions: int = Field(default=30, ge=1)
    view: str = "accessibility"
    """`accessibility`: WebArena's tree and actions. `aria`: Playwright's snapshot, with the same actions. `html`:
    WebRL's.
    """
    browser: Literal["text", "chromium"] = "text"
    """`text`: in process, without scripts. `chromium`: a real one, through Playwright."""
    headed: bool = False
    """Show Chromium's window."""
    lines: int = Field(default=0, ge=0)
    """Lines of a page that are shown at once; scrolling moves on. 0: the whole page."""
    screenshots: bool = False
    """Keep a small picture of the page after each turn, for the report. Only Chromium draws any."""


class BrowserEnv(TextEnv):
    """One episode in a session of its own. A subclass opens the session and grades what was done."""

    Config = BrowserConfig
    views: ClassVar = tuple(GRAMMARS)
    config: BrowserConfig
    waits: bool = False
    """Whether steps are spent waiting for another process, so that something else can be done meanwhile."""

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        self.grammar = GRAMMARS[self.config.view]
        self.waits = self.config.browser != "text"
        self.session: Session | None = None

    @property
    @abstractmethod
    def intent(self) -> str:
        """What the agent is asked to do."""

    @abstractmethod
    def _open(self) -> None:
        """Begin the episode in a session of its own, again after a browser died; ends with `_observe`."""

    @property
    def browser(self) -> Browser:
        """The browser that the settings name."""
        return browser(self.config.browser, self.config.headed)

    def start(self) -> None:
        """Book-keeping of a new episode, and its first page."""
        self.done_so_far: list[Action] = []
        self.retried = False
        self.notice, self.top = "", 0
        self._open()

    def parse(self, action: str) -> Action | None:
        """The action that a text means; None, with a notice for the agent, where it means none."""
        read = self.grammar.parse(action)
        if isinstance(read, Malformed):
            self.notice = read.reason
            return None
        return read

    def carry_out(self, action: Action) -> tuple[bool, bool]:
        """Do it: whether it could be done, and whether anything changed. The agent is told why not."""
        before = self._what_is_shown()
        return self._judge(before, self._act(action))

    @staticmethod
    def carry_out_many(worlds: Sequence[BrowserEnv], actions: Sequence[Action]) -> list[tuple[bool, bool] | Exception]:
        """The same in many worlds of one browser, at once where it waits."""
        befores = [world._what_is_shown() for world in worlds]
        sessions = [world.session for world in worlds if world.session is not None]
        judged: list[tuple[bool, bool] | Exception] = []
        results = worlds[0].browser.step_many(sessions, actions) if worlds else []
        for world, before, action, result in zip(worlds, befores, actions, results, strict=True):
            try:
                if isinstance(result, BrowserDied):
                    outcome = world._play_again(action, result)
                else:
                    outcome = world._seen(action, *result)
                world.done_so_far.append(action)
                judged.append(world._judge(before, outcome))
            except Exception as error:
                judged.append(error)
        return judged

    def _judge(self, before: tuple[str, int, str], outcome: Outcome) -> tuple[bool, bool]:
        self.notice = outcome.failure or ""
        return outcome.failure is None, self._what_is_shown() != before

    def render(self, view: str | None = None) -> str:
        self.view_named(view)
        notice = f"Notice: {self.notice}\n" if self.notice else ""
        return f"Task: {self.intent}\nURL: {self.page.url}\n{notice}{self._window(self._body(view))}"

    def outcome(self, reward: float, **told: Any) -> Step:
        if self.config.screenshots and self.session is not None:
            picture = self.session.screenshot(small=True)
            if picture is not None:
                told["picture"] = base64.b64encode(picture).decode("ascii")
        return super().outcome(reward, **told)

    def random_action(self, rng: np.random.Generator) -> str:
        """A click on anything, or text in a field, or now and then the end with some text of the page."""
        nodes = list(self.page.nodes.values())
        node = nodes[int(rng.integers(len(nodes)))]
        words = node.name.split() or ["1"]
        word = words[int(rng.integers(len(words)))]
        draw = rng.random()
        if draw < 0.05:
            return self.grammar.write(Action(Kind.STOP, text=word))
        fields = [each for each in nodes if each.role in ("textbox", "searchbox")]
        if fields and draw < 0.25:
            chosen = fields[int(rng.integers(len(fields)))]
            typed = Action(Kind.TYPE, chosen.id, word, clear=self.grammar.clears, enter=True)
            return self.grammar.write(self._renumber(typed))
        links = [each for each in nodes if each.role in ("link", "button", "checkbox", "radio")] or [node]
        return self.grammar.write(self._renumber(Action(Kind.CLICK, links[int(rng.integers(len(links)))].id)))

    def stop_action(self, answer: str) -> str:
        """The end of an episode, in the grammar of the view."""
        return self.grammar.write(Action(Kind.STOP, text=answer))

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
        self.session = None

    def _renumber(self, action: Action) -> Action:
        """A script's action with the id that the shown view has for its element."""
        if action.element is None or self.config.view != "html":
            return action
        assert self.session is not None
        number = self.session.number_of(self.page.nodes[action.element])
        return replace(action, element=number if number is not None else action.element)

    def _act(self, action: Action) -> Outcome:
        """Carry it out."""
        try:
            outcome = self._act_and_look(action)
        except BrowserDied as error:
            outcome = self._play_again(action, error)
        self.done_so_far.append(action)
        return outcome

    def _play_again(self, action: Action, error: BrowserDied) -> Outcome:
        """A browser that dies is replaced once, and the episode played again up to here."""
        if self.retried:
            raise error
        self.retried = True
        self._open()
        for past in self.done_so_far:
            self._act_and_look(past)
        return self._act_and_look(action)

    def _carry_in_session(self, action: Action) -> Outcome:
        assert self.session is not None
        return self.session.act(action)

    def _act_and_look(self, action: Action) -> Outcome:
        return self._seen(action, self._carry_in_session(action))

    def _seen(self, action: Action, outcome: Outcome, page: Page | None = None) -> Outcome:
        """Look at the page after an action."""
        url = self.page.url
        self._observe(page)
        if self.page.failure is not None:
            outcome = replace(outcome, failure=outcome.failure or str(self.page.failure))
        if action.kind is Kind.SCROLL and self.config.lines:
            last = max(0, len(self._body().splitlines()) - self.config.lines)
            self.top = min(max(0, self.top + round(action.pages * self.config.lines)), last)
        elif self.page.url != url:
            self.top = 0
        return outcome

    def _observe(self, page: Page | None = None) -> None:
        """Take in the page as it is now, which is `page` where somebody has just looked."""
        assert self.session is not None
        self.page: Page = page or self.session.observe()
        if self.page.failure is not None:
            self.notice = str(self.page.failure)
        self.body = self._text_in(self.config.view)

    def _text_in(self, view: str) -> str:
        """The page in a view. The session then understands the ids of that view."""
        assert self.session is not None
        match view:
            case "accessibility":
                return self.page.text()
            case "aria":
                return snapshot(self.page)
        return self.session.simplified_html()

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

    def _what_is_shown(self) -> tuple[str, int, str]:
        return self.page.url, self.top, self.body


_STARTED: dict[tuple[str, bool], Browser] = {}
_STARTING = threading.Lock()


def browser(name: str, headed: bool = False) -> Browser:
    """The browser of this process, one for all threads; it is closed when the process ends."""
    with _STARTING:
        if (name, headed) not in _STARTED:
            _STARTED[name, headed] = start(name, headed)
            atexit.register(_STARTED[name, headed].close)
        return _STARTED[name, headed]


def start(name: str, headed: bool = False) -> Browser:
    """A new browser, by its name."""
    if name == "text":
        from oneiro_web.browsers.text.browser import TextBrowser

        return TextBrowser()
    from oneiro_web.browsers.chromium.browser import ChromiumBrowser

    return ChromiumBrowser(headed=headed)
