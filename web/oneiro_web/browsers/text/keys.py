"""Names of keys, as Playwright takes them and agents write them."""

from __future__ import annotations

NAMED = {
    name.lower(): name
    for name in (
        "Enter", "Tab", "Backspace", "Delete", "Escape", "Home", "End", "PageUp", "PageDown", "Insert",
        "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", *(f"F{index}" for index in range(1, 13)),
    )
}  # fmt: skip
NAMED.update(
    {"return": "Enter", "esc": "Escape", "del": "Delete", "space": " ", "spacebar": " ", "up": "ArrowUp"},
    down="ArrowDown", left="ArrowLeft", right="ArrowRight",
)  # fmt: skip
MODIFIERS = {
    "control": "Control", "ctrl": "Control", "meta": "Control", "cmd": "Control", "command": "Control",
    "alt": "Alt", "option": "Alt", "shift": "Shift",
}  # fmt: skip


def split_keys(combination: str) -> tuple[set[str], str] | None:
    """Modifiers and key of `Control+Shift+a`; None if a name is unknown. Meta is Control, as in WebArena."""
    if combination in ("+", " "):
        return set(), combination
    *before, last = [part.strip() for part in combination.strip().split("+")]
    modifiers = {MODIFIERS.get(part.lower(), "") for part in before}
    key = last if len(last) == 1 else NAMED.get(last.lower())
    if key is None or "" in modifiers:
        return None
    return modifiers, key
