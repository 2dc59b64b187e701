"""Text as gymnasium spaces. Apart from the worlds, which also play where gymnasium is not installed."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Text

OBSERVATION = 2**16
"""Characters of an observation, at most."""
ACTION = 2**12
"""Characters of an action, at most."""
CHARACTERS = "".join(chr(code) for code in range(32, 127)) + "\n√"
"""What shipped worlds write with: samples are made of these, and texts of these can be flattened."""


class AnyText(Text):
    """Every text up to a length: worlds take any text as action, and data files may show any character."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=CHARACTERS)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class ActionText(AnyText):
    """Any text; a sample is one of `words`, where the world has such."""

    words: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(ACTION)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        if self.words and mask is None and probability is None:
            return self.words[int(self.np_random.integers(len(self.words)))]
        return super().sample(mask, probability)
