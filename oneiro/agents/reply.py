"""What an agent says in a turn, and reading it back: thoughts, imagined states, actions.

    <think> <observation> state </observation> ... <prediction> next state </prediction> </think> <answer> Up || Left
    </answer>

Reading is total and linear in the text: any string gives a `Reply`. Bodies are found once, by position, so that the
true states can later be put in their place without searching again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from oneiro.episode import Tokens
    from oneiro.models.language import LanguageModel

SEPARATOR = "||"
TAGS = ("think", "observation", "prediction", "answer")
TAG_TOKENS = [mark for tag in TAGS for mark in (f"<{tag}>", f"</{tag}>")]
OFFICIAL = r"<think>(.*?)</think>\s*<answer>(.*?)</answer>"
"""RAGEN's expression. Without thoughts it is its second half; with states, SPA's, the thoughts are
`\\s*<observation>(.*?)</observation>(.*?)<prediction>(.*?)</prediction>\\s*`. It is never run: on hostile text it needs
minutes.
"""
OFFICIALLY_REMOVED = ("<think>", "</think>", "<answer>", "</answer>", "<|im_start|>", "<|im_end|>")
"""Marks that RAGEN takes out of an answer, one after the other."""
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reply:
    """One turn's text with the places of its parts."""

    text: str
    actions: tuple[str, ...]
    """As written, stripped, in order; whether the world knows them is the world's business."""
    formatted: bool
    """Whether the text has the demanded form."""
    observation: Span | None = None
    prediction: Span | None = None
    think: Span | None = None
    answer: Span | None = None

    def body(self, span: Span | None) -> str | None:
        return None if span is None else self.text[span[0] : span[1]].strip()


Parser = Literal["strict", "official"]
"""`strict`: the whole reply has the demanded form; `official`: the first part of it that RAGEN's expression matches."""


def read(
    text: str,
    think: bool = True,
    world_model: bool = False,
    actions_per_turn: int | None = None,
    parser: Parser = "strict",
) -> Reply:
    """Find the parts. The answer counts only in the demanded form: after the thoughts, and with both states if asked
    for.
    """
    observation = prediction = None
    if parser == "official":
        thoughts, answer, prediction = _official(text, think, world_model)
    else:
        thoughts = _between(text, "think", 0, last=True)
        answer = _between(text, "answer", max(0, text.rfind("<answer>")))
    if thoughts is not None:
        observation = _between(text, "observation", thoughts[0], end=thoughts[1])
        after = observation[1] if observation else thoughts[0]
        prediction = prediction or _between(text, "prediction", after, end=thoughts[1])
    formatted = answer is not None
    if parser == "strict" and answer is not None:
        if think:
            formatted = thoughts is not None and thoughts[1] < answer[0] and text.lstrip().startswith("<think>")
        if world_model:
            formatted = formatted and observation is not None and prediction is not None
    actions: tuple[str, ...] = ()
    if formatted and answer is not None:
        body = text[answer[0] : answer[1]]
        for mark in OFFICIALLY_REMOVED if parser == "official" else ():
            body = body.replace(mark, "").strip()
        words = (word.strip() for word in body.split(SEPARATOR))
        actions = tuple(word for word in words if word)[:actions_per_turn]
    return Reply(text, actions, formatted, observation, prediction, thoughts, answer)


def _official(text: str, think: bool, world_model: bool) -> tuple[Span | None, Span | None, Span | None]:
    """Thoughts, answer and predicted state in the first match of `OFFICIAL`, or of what it is without thoughts or with
    states. What stands around the match does not matter.

    Each part may only move to the right, so the first place of each is the one of the match: no way back is needed,
    and the time is linear.
    """
    nothing = None, None, None
    if not think:
        return None, _between(text, "answer", 0), None
    start = _run(text, ("<think>", "<observation>") if world_model else ("<think>",), 0)
    if start is None:
        return nothing
    at = start[1]
    for mark in ("</observation>", "<prediction>") if world_model else ():
        place = text.find(mark, at)
        if place < 0:
            return nothing
        at = place + len(mark)
    closing = ("</prediction>", "</think>", "<answer>") if world_model else ("</think>", "<answer>")
    end = _run(text, closing, at)
    answer = _between(text, "answer", end[1] - len("<answer>")) if end is not None else None
    if end is None or answer is None:
        return nothing
    thoughts = start[0] + len("<think>"), text.rfind("</think>", 0, end[1])
    return thoughts, answer, (at, end[0]) if world_model else None


def _run(text: str, marks: tuple[str, ...], start: int) -> Span | None:
    """Where marks first stand one behind the other from `start` on, with nothing but space between them."""
    while (first := text.find(marks[0], start)) >= 0:
        at = first + len(marks[0])
        for mark in marks[1:]:
            while at < len(text) and text[at].isspace():
                at += 1
            if not text.startswith(mark, at):
                break
            at += len(mark)
        else:
            return first, at
        start = first + len(marks[0])
    return None


def _between(text: str, tag: str, start: int, end: int | None = None, last: bool = False) -> Span | None:
    """The body between `<tag>` and `</tag>`; with `last`, up to the last closing mark before the answer."""
    end = len(text) if end is None else end
    opened = text.find(f"<{tag}>", start, end)
    if opened < 0:
        return None
    opened += len(tag) + 2
    if last:
        answer = text.rfind("<answer>")
        closed = text.rfind(f"</{tag}>", opened, answer if answer >= 0 else end)
    else:
        closed = text.find(f"</{tag}>", opened, end)
    return None if closed < 0 else (opened, closed)


def write(
    actions: list[str] | tuple[str, ...],
    observation: str | None = None,
    prediction: str | None = None,
    thought: str = "",
    think: bool = True,
) -> str:
    """A well-formed reply; the form `read` understands and small models learn from scratch."""
    inner = ""
    if observation is not None:
        inner += f"<observation>{observation}</observation>"
    inner += thought
    if prediction is not None:
        inner += f"<prediction>{prediction}</prediction>"
    answer = f"<answer>{f' {SEPARATOR} '.join(actions)}</answer>"
    return f"<think>{inner}</think>{answer}" if think else answer


def substitute(reply: Reply, observation: str, prediction: str) -> list[tuple[str, str]]:
    """The reply with true states in place of the imagined ones, as (tag, text) pieces; tag is "" outside the states."""
    pieces: list[tuple[str, str]] = []
    at = 0
    for tag, span, truth in (
        ("observation", reply.observation, observation),
        ("prediction", reply.prediction, prediction),
    ):
        if span is None:
            continue
        pieces.append(("", reply.text[at : span[0]]))
        pieces.append((tag, truth))
        at = span[1]
    pieces.append(("", reply.text[at:]))
    return [(tag, text) for tag, text in pieces if text]


def action_in(text: str) -> str:
    """The first action of a reply without thoughts; the whole text where there is none."""
    actions = read(text, think=False).actions
    return actions[0] if actions else text


def reasoning_length(language: LanguageModel, tokens: Tokens) -> int:
    """How many leading tokens of a reply come before the one that completes `</think>`; all, where none does."""
    if "</think>" not in language.decode(tokens):
        return len(tokens)
    low, high = 0, len(tokens)  # the first `low` tokens do not hold the mark, the first `high` do
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if "</think>" in language.decode(tokens[:middle]) else (middle, high)
    return low
