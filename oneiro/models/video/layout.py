"""How a segment of video becomes one row of tokens: the only place that knows ids, positions and lengths.

    single-step   z a  z a  z a  z a  BOS  z  EOS     frames and actions of the past, then the next frame
    multi-step    c  z a  z a  z a  ...  z a          a context, one frame, then the frames its actions lead to

z are the tokens of a frame, a those of the action taken when it was seen, c those of the context. Frame codes are the
first ids of the vocabulary. They are all a model ever has to predict: everything else is given, so the model speaks
only the first `codes` ids and no illegal token can come out.

| ids                 | what                                          |
|---------------------|-----------------------------------------------|
| 0 .. codes - 1      | frame codes                                   |
| then `codes` more   | context codes, where there is a context       |
| then `bins`         | action bins, the same for all their entries   |
| then 2              | BOS, EOS                                      |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import Row, Segment, Tokens, given
from oneiro.runtime.errors import OneiroError

FREE = -1
"""In a row of forced tokens: this position is sampled. The engine's own sign."""

Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Layout:
    """One description from which rows, prompts, forced tokens and masks come."""

    codes: int
    """Different frame tokens, and as many context tokens where there is a context."""
    frame_tokens: int
    action_tokens: int
    """Entries of an action, one token each."""
    past: int
    """Frames that are given."""
    future: int
    """Frames that are predicted."""
    context_tokens: int = 0
    bins: int = 256
    marks: bool = False
    """BOS before the first predicted frame and EOS at the end, instead of an action behind the last frame."""

    @classmethod
    def single_step(cls, codes: int, frame_tokens: int, action_tokens: int, past: int = 4, bins: int = 256) -> Layout:
        return cls(codes, frame_tokens, action_tokens, past, 1, bins=bins, marks=True)

    @classmethod
    def multi_step(
        cls, codes: int, frame_tokens: int, context_tokens: int, action_tokens: int, future: int = 7, bins: int = 256
    ) -> Layout:
        return cls(codes, frame_tokens, action_tokens, 1, future, context_tokens, bins)

    @classmethod
    def read(cls, data: Any) -> Layout:
        """From the plain data that `data()` gave."""
        try:
            return cls(**data)
        except TypeError as error:
            raise OneiroError(f"not the layout of a video model: {error}") from error

    def data(self) -> dict[str, Any]:
        return asdict(self)

    # Ids

    @property
    def first_context(self) -> int:
        return self.codes

    @property
    def first_action(self) -> int:
        return self.codes * (2 if self.context_tokens else 1)

    @property
    def bos(self) -> int:
        return self.first_action + self.bins

    @property
    def eos(self) -> int:
        return self.bos + 1

    @property
    def vocabulary(self) -> int:
        return self.eos + 1

    # Lengths

    @property
    def frames(self) -> int:
        return self.past + self.future

    @property
    def step_tokens(self) -> int:
        """A frame and its action."""
        return self.frame_tokens + self.action_tokens

    @property
    def prompt_length(self) -> int:
        return self.context_tokens + self.past * self.step_tokens + int(self.marks)

    @property
    def reply_length(self) -> int:
        """From the first predicted token to the last: frames, and the actions between them."""
        return self.future * self.step_tokens - self.action_tokens

    @property
    def length(self) -> int:
        """A whole row, with what stands behind the last frame."""
        return self.prompt_length + self.reply_length + (1 if self.marks else self.action_tokens)

    # Rows. Context [C], frames [T, Z] and actions [T, A] are code indices and bins; ids are made here.

    def prompt(self, context: Numbers, frames: Numbers, actions: Numbers) -> Tokens:
        """What the model is given before it predicts; later frames are never looked at."""
        return self.opening(context, frames[: self.past], actions[: self.past])

    def opening(self, context: Numbers, frames: Numbers, actions: Numbers) -> Tokens:
        """A row up to the frame that comes next, however many there are so far: rollouts go on from here."""
        parts = [self.first_context + np.asarray(context)]
        for frame, action in zip(frames, actions, strict=True):
            parts += [np.asarray(frame), self.first_action + np.asarray(action)]
        if self.marks:
            parts.append(np.array([self.bos]))
        return np.concatenate(parts).astype(np.int32)

    def force_actions(self, actions: Numbers) -> Tokens:
        """[reply]: the actions that stand between predicted frames, FREE where the model chooses."""
        steps = np.full((self.future, self.step_tokens), FREE, np.int32)
        steps[:, self.frame_tokens :] = self.first_action + np.asarray(actions)[self.past : self.frames]
        return steps.reshape(-1)[: self.reply_length]

    def row(self, context: Numbers, frames: Numbers, actions: Numbers, history: float = 0.0) -> Row:
        """A true segment to learn from: cross-entropy on the frames to predict.

        With `history`, given frames but the first carry that weight too: each is predicted from those before it.
        """
        prompt, first = self.prompt(context, frames, actions), self.context_tokens + self.step_tokens
        segments = [given(prompt[:first] if history else prompt, tag="past")]
        if history:
            for start in range(first, first + (self.past - 1) * self.step_tokens, self.step_tokens):
                seen, taken = np.split(prompt[start : start + self.step_tokens], [self.frame_tokens])
                segments += [given(seen, tag="frame", ce=history), given(taken, tag="action")]
            segments.append(given(prompt[self.prompt_length - int(self.marks) :], tag="past"))
        for turn, frame in enumerate(range(self.past, self.frames), start=1):
            segments.append(given(frames[frame], role="assistant", tag="frame", turn=turn, ce=1.0))
            if not self.marks or turn < self.future:
                bins = self.first_action + np.asarray(actions[frame])
                segments.append(given(bins, tag="action", turn=turn))
        if self.marks:
            segments.append(given([self.eos], tag="end", turn=self.future))
        return Row(segments)

    def reply_frames(self, reply: Tokens) -> Tokens:
        """A sampled reply -> the tokens of its frames [future, Z]."""
        padded = np.concatenate([reply, np.zeros(self.action_tokens, reply.dtype)])
        return padded.reshape(self.future, self.step_tokens)[:, : self.frame_tokens]

    def reply_segments(self, segments: list[Segment]) -> list[Segment]:
        """A sample's segments with each predicted frame as a turn of its own, its action behind it."""
        turn = 0
        for segment in segments:
            turn += int(segment.sampled)
            segment.turn, segment.tag = turn, "frame" if segment.sampled else "action"
        return segments
