"""How a world is put into words for an agent: the prompt of each turn, how much of the past it shows, and web pages in
few tokens, without what WebArena's accessibility tree repeats.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from pydantic import Field

from oneiro.agents.reply import SEPARATOR, Parser
from oneiro.recipe import Settings
from oneiro.worlds.base import World

SYSTEM = "You are a careful player. You think about what each action does before you act."


class DialogueSettings(Settings):
    """Turns, budgets, and the words around a state."""

    context: Literal["full", "window", "actions", "single"] = "full"
    """How much of the past a turn shows: everything as a growing chat, the last `window` turns, all past actions but
    no past state (WebRL, WebAgent-R1), or this state alone.
    """
    compact: bool = False
    """Show web pages without indentation, empty containers, properties and unselected options (`compact`)."""
    window: int = Field(2, ge=1)
    """Turns shown with `context: window`."""
    brief: bool = False
    """No instructions: show a level's own rules, where it has such, and the state (with `context: window`, also the
    last states and what was done in them). For small models that learn the task from examples, not from prose.
    """
    think: bool = True
    """Ask for thoughts."""
    world_model: bool = True
    """Ask for the observed and the predicted state inside the thoughts."""
    show_reward: bool = True
    """Show the reward of the last turn."""
    max_turns: int = Field(5, ge=1)
    """Replies in an episode."""
    actions_per_turn: int = Field(5, ge=1)
    """Actions that count in a reply."""
    format_penalty: float = Field(0.1, ge=0)
    """Taken from a turn's reward when its reply is malformed or names an action the world does not know."""
    state_reward: float = Field(0.0, ge=0)
    """Added for each state that is described exactly (online world modelling, the VAGEN baseline)."""
    state_penalty: float = Field(0.0, ge=0)
    """Taken for each state that is not. Unlike a reward for true ones it does not pay to dawdle, and RL cannot win by
    predicting what one wishes for.
    """
    parser: Parser = "strict"
    """How replies are read: `strict`, or by the published regular expression (`official`)."""
    max_words: int = 100
    """The length asked for in the prompt."""

    @property
    def form(self) -> str:
        """The demanded form of a reply."""
        inner = "[your thoughts]"
        if self.world_model:
            inner = "<observation>[current state]</observation> [your thoughts] <prediction>[next state]</prediction>"
        answer = f"<answer>[action] {SEPARATOR} [action]</answer>"
        return f"<think>{inner}</think>{answer}" if self.think else answer


def show_state(state: str, settings: DialogueSettings) -> str:
    return compact(state) if settings.compact else state


def first_message(world: World, state: str, settings: DialogueSettings) -> str:
    """What the agent reads before its first reply."""
    if settings.brief:
        return _after_rules(world, show_state(state, settings))
    rules = (
        f"{world.instruction}\nGive up to {settings.actions_per_turn} actions a turn, separated by '{SEPARATOR}'. "
        f"You have {settings.max_turns} turns."
    )
    return f"{rules}\n\n{turn_message(1, state, world.config.max_actions, settings)}"


def _after_rules(world: World, shown: str) -> str:
    return f"{rules}\n\n{shown}" if (rules := world.level_rules) else shown


def turn_message(turn: int, state: str, actions_left: int, settings: DialogueSettings) -> str:
    """The state of one turn and the demanded form."""
    if settings.brief:
        return show_state(state, settings)
    return (
        f"Turn {turn}:\nState:\n{show_state(state, settings)}\n{actions_left} actions left. Answer in this form and "
        f"add nothing: {settings.form} At most {settings.max_words} words."
    )


def next_message(reward: float, turn: int, state: str, actions_left: int, settings: DialogueSettings) -> str:
    """What the agent reads after a reply, when the conversation goes on."""
    earned = f"Reward: {reward:g}\n\n" if settings.show_reward and not settings.brief else ""
    return earned + turn_message(turn, state, actions_left, settings)


def history_message(
    world: World,
    past: list[tuple[str, tuple[str, ...], float]],
    turn: int,
    state: str,
    actions_left: int,
    settings: DialogueSettings,
) -> str:
    """One message that tells the last turns as text: windowed, action-only and single-turn contexts."""
    # Single-turn contexts show no past at all, also where turns were taken.
    done = [_list_actions(actions) for _, actions, _ in past] if settings.context == "actions" else []
    kept = past[-settings.window :] if settings.context == "window" else []
    if settings.brief:
        turns = [f"{show_state(before, settings)}\n{_list_actions(actions)}" for before, actions, _ in kept]
        return _after_rules(world, "\n".join([*done, "\n\n".join([*turns, show_state(state, settings)])]))
    lines = [world.instruction, f"Give up to {settings.actions_per_turn} actions a turn, separated by '{SEPARATOR}'."]
    if done:
        lines += ["", "What you have done so far:", *done]
    for offset, (before, actions, reward) in enumerate(kept):
        earned = f" Reward: {reward:g}." if settings.show_reward else ""
        number = turn - len(kept) + offset
        lines.append(
            f"\nTurn {number}:\nState:\n{show_state(before, settings)}\nYou answered {_list_actions(actions)}.{earned}"
        )
    return "\n".join([*lines, "", turn_message(turn, state, actions_left, settings)])


def _list_actions(actions: tuple[str, ...]) -> str:
    return f" {SEPARATOR} ".join(actions) or "nothing valid"


# Web pages in few tokens ----------------------------------------------------------------------------------------------


NODE = re.compile(r"\t*\[(\d+)\] (\w+) ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")((?: \w+: \S.*)?)$")
"""A line of the tree: indentation, id, role, quoted name, properties."""
SHOWN_STATES = re.compile(r" (checked|selected|expanded|disabled): True\b")
"""Properties that are still said, where they hold."""
ROLES = {"StaticText": "", "RootWebArea": "page"}
"""Roles that are called otherwise; a text needs no role."""
GROUPS = frozenset(("navigation", "main", "search", "form", "contentinfo", "banner", "region", "list", "table", "row"))
"""Roles that hold others and are left out, named or not."""
ACTED_ON = frozenset(("link", "button", "textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton"))
"""Roles that are shown even without a name."""
SHORT_LIST = 6
"""Of a list with more options than these only the selected one is shown, and those that the task names."""
MARKS = ("Tab ", "URL: ")
"""Lines above the tree that are left out: the first line of the tree has the page's title."""


def compact(text: str) -> str:
    """The text of a page with one short line for each node that says something; other lines stay as they are.

    Left out are: indentation, groups, nodes without a name that cannot be acted on, properties (but `checked`,
    `selected`, `expanded`, `disabled`, where true), the options of long lists that are neither selected nor named
    in the task, and headings and labels that the next line repeats. Ids do not change, so actions mean the same.
    """
    shown: list[tuple[str, str]] = []
    """Each line, and the name that the next line may take over from it."""
    for role, line, name in _nodes(text):
        if name and shown and shown[-1][1] == name:
            shown.pop()
        shown.append((line, name if role in ("StaticText", "heading") else ""))
    return "\n".join(line for line, _ in shown)


def _nodes(text: str) -> Iterator[tuple[str, str, str]]:
    """Role, line and name of what is shown; lines that are no nodes have no role."""
    task = text.partition("\n")[0].lower() if text.startswith("Task: ") else ""
    read = ((line, _node(line)) for line in text.splitlines())
    for is_option, part in groupby(read, key=lambda pair: pair[1] is not None and pair[1].role == "option"):
        run = list(part)
        for line, node in run:
            if node is None:
                if line and not line.startswith(MARKS):
                    yield "", line, ""
                continue
            hidden = is_option and len(run) > SHORT_LIST and not node.selected and node.name.lower() not in task
            if not hidden and node.role not in GROUPS and (node.name or node.role in ACTED_ON):
                yield node.role, node.shown, node.name


class _Node(NamedTuple):
    """A line of the tree as it was read."""

    role: str
    name: str
    selected: bool
    shown: str


@lru_cache(maxsize=65536)  # pages of a site share most of their lines
def _node(line: str) -> _Node | None:
    found = NODE.fullmatch(line)
    if found is None:
        return None
    number, role, quoted, properties = found.groups()
    name, states = " ".join(unquote(quoted).split()), SHOWN_STATES.findall(properties)
    words = [ROLES.get(role, role), name, *states]
    return _Node(role, name, "selected" in states, f"[{number}] " + " ".join(word for word in words if word))


def unquote(text: str) -> str:
    """The name that Python's `repr` quoted."""
    if "\\" not in text:
        return text[1:-1]
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text[1:-1]
