"""What a grader found: every check with its score and a reason."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from oneiro_web.errors import WebError


class UnsupportedCheck(WebError):
    """A check that cannot be made here; the message names what it needs."""


@dataclass(frozen=True)
class Checked:
    """One check."""

    name: str
    score: float
    reason: str
    """One line: what was compared."""
    typed: bool = False
    """A typed comparison stood in for a judge."""
    unsupported: bool = False
    """Nothing here can make this check; it counts as 0."""


@dataclass(frozen=True)
class Result:
    """All checks of a task. A task without checks scores 0."""

    checks: tuple[Checked, ...]

    @property
    def score(self) -> float:
        """The product of all scores."""
        return prod(check.score for check in self.checks) if self.checks else 0.0

    @property
    def unsupported(self) -> tuple[str, ...]:
        """What could not be checked."""
        return tuple(f"{check.name}: {check.reason}" for check in self.checks if check.unsupported)

    @property
    def typed(self) -> bool:
        """Whether a typed comparison stood in for a judge anywhere."""
        return any(check.typed for check in self.checks)


def shown(text: object, most: int = 60) -> str:
    """A text for a reason: quoted and short."""
    written = repr(text[: most + 1] if isinstance(text, str) else text)
    return written if len(written) <= most else f"{written[: most - 3]}..."
