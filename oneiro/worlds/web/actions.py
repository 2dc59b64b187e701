"""What an agent can do in a browser, as one type. Texts in WebArena's and WebRL's grammars are parsed to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Every action that every browser carries out; `STOP` is for the world and `NOTHING` is a wait."""

    CLICK = "click"
    RIGHT_CLICK = "right_click"
    HOVER = "hover"
    TYPE = "type"
    SELECT = "select"
    PRESS = "press"
    SCROLL = "scroll"
    NEW_TAB = "new_tab"
    FOCUS_TAB = "tab_focus"
    CLOSE_TAB = "close_tab"
    GOTO = "goto"
    BACK = "go_back"
    FORWARD = "go_forward"
    NOTHING = "wait"
    STOP = "stop"


@dataclass(frozen=True)
class Action:
    """One parsed action. Fields that a kind does not use keep their defaults."""

    kind: Kind
    element: int | None = None
    """The id of a node of the page as it was last observed."""
    text: str = ""
    """What is typed, the option's text, the key combination (`Control+a`), the URL, or the answer."""
    clear: bool = False
    """TYPE: empty the field first (WebRL); without, the text is added at the end (WebArena)."""
    enter: bool = False
    """TYPE: press Enter after it."""
    tab: int = 0
    """FOCUS_TAB: the index of the tab."""
    pages: float = 0.0
    """SCROLL: viewports to move, negative for up (WebArena 1, WebRL 2/3)."""
