"""The same step with its objects in another order, with other numbers and other names.

Where a dataset has few states, a model memorises them, and with them which commands do nothing in a game.
In augmented states only what an object is like and where it stands counts. ByteSized32 calls objects by name and
number, `axe (ID: 4)`; objects that are not called so keep their names and numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oneiro.worlds.textgame.state import Object, State, Transition

CALLED = re.compile(r"(.+) \(ID: (\d+)\)")
FIXED = ("Agent", "World")
"""Types of objects that are always called the same: commands speak of 'yourself'."""


def names_in(states: Sequence[State]) -> list[str]:
    """What numbered objects are called in some states, without their numbers, sorted."""
    return sorted({name for state in states for name in _new_names(state).values()})


def augment(case: Transition, rng: np.random.Generator, names: Sequence[str]) -> Transition:
    """`case` augmented by `rng` for its state alone: all commands in that state are augmented alike."""
    words = _Words.draw(case.state, rng, names)
    order = rng.permutation(len(case.state))
    return replace(
        case,
        state=words.state([case.state[place] for place in order]),
        after_action=words.state(case.after_action),
        after=words.state(case.after),
        action=words.text(case.action),
        observation=words.text(case.observation),
    )


def _new_names(state: State) -> dict[int, str]:
    """By number the names of those objects that may be called otherwise."""
    return {
        thing["uuid"]: called[1]
        for thing in state
        if thing["type"] not in FIXED and (called := CALLED.fullmatch(thing["name"]))
    }


@dataclass(frozen=True)
class _Words:
    """New names and numbers for old ones."""

    named: dict[int, tuple[str, str]]
    """By old number the old and the new name."""
    numbered: dict[int, int]

    @classmethod
    def draw(cls, state: State, rng: np.random.Generator, names: Sequence[str]) -> _Words:
        things = _new_names(state)
        free = [name for name in names if name not in things.values()]
        fresh = [free[place] for place in rng.permutation(len(free))[: len(things)]]
        numbers = [int(number) for number in rng.permutation(list(things))] if things else []
        return cls(
            {number: (name, new) for (number, name), new in zip(things.items(), fresh, strict=False)},
            dict(zip(things, numbers, strict=True)),
        )

    def state(self, state: State) -> State:
        return [self._object(thing) for thing in state]

    def text(self, text: str) -> str:
        """Full names, and names alone where they are one object's; in one pass, so that no new name is read again."""
        owners = Counter(old for old, _ in self.named.values())
        alone = {old: new for old, new in self.named.values() if owners[old] == 1}
        if not alone:
            return self._calls(text)
        longest_first = "|".join(re.escape(old) for old in sorted(alone, key=len, reverse=True))
        full = "|".join(rf"{re.escape(old)} \(ID: {number}\)" for number, (old, _) in self.named.items())
        return re.sub(
            rf"({full}|\(ID: \d+\))|\b(?:{longest_first})\b(?! \(ID: )",
            lambda match: self._calls(match[0]) if match[1] else alone[match[0]],
            text,
        )

    def _object(self, thing: Object) -> Object:
        renamed: Object = self._value(thing)
        return {**renamed, "uuid": self.numbered.get(thing["uuid"], thing["uuid"])}

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._calls(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {self._calls(key): self._value(item) for key, item in value.items()}
        return value

    def _calls(self, text: str) -> str:
        """With every `name (ID: 4)` replaced; what a step calls an object anew keeps what is new in it."""
        if "(ID: " not in text:
            return text
        pieces = re.split(r"\(ID: (\d+)\)", text)  # text, number, text, number, ..., text
        parts = []
        for before, digits in zip(pieces[::2], pieces[1::2], strict=False):
            number = int(digits)
            old, new = self.named.get(number, ("", ""))
            parts.append(f"{_last_replaced(before, old, new)}(ID: {self.numbered.get(number, number)})")
        return "".join(parts) + pieces[-1]


def _last_replaced(text: str, old: str, new: str) -> str:
    """`text` with `new` in place of the last `old`, which stands right before a number."""
    head, match, tail = text.rpartition(old) if old else (text, "", "")
    return head + new + tail if match and not tail.strip() else text
