"""Episodes as WebRL keeps them: what is stored, replayed and learned from, on episodes made up by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oneiro.agents.prompts import SYSTEM, DialogueSettings
from oneiro.episode import Episode, FinishReason, Row, SamplingParams, Segment, given
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError
from oneiro.systems.webrl import episodes as records
from oneiro.systems.webrl import phases
from oneiro.systems.webrl.episodes import RowFormat, is_played, is_valid, key_of, select_replay, stored_turns


def episode(task: str, *replies: str, valid: bool = True, **facts: Any) -> Episode:
    turns = [
        {"message": f"page {number}", "state": f"page {number}", "reply": reply, "actions": [{"valid": valid}]}
        for number, reply in enumerate(replies)
    ]
    return Episode([], [0.0] * len(turns), info={"task": {"id": task, "intent": "x"}, "turns": turns}, **facts)


def test_the_first_successes_of_a_task_are_stored_over_all_phases() -> None:
    phases = [
        [episode("a", "1"), episode("b", "1", "2")],
        [episode("a", "1"), episode("a", "1", "2"), episode("a", "1"), episode("c", "1")],
    ]
    good = [[True, False], [False, True, True, True]]
    assert stored_turns(phases, good, 2) == [(0, 0, 0), (1, 1, 0), (1, 1, 1), (1, 3, 0)]
    assert stored_turns(phases, good, 1) == [(0, 0, 0), (1, 3, 0)]
    assert (1, 2, 0) in stored_turns(phases, good, 3)


def test_replay_is_drawn_from_the_band_and_keeps_what_the_actor_said() -> None:
    places = [(0, number, 0) for number in range(6)]
    chosen = select_replay(places, [0.5, 0.6, 0.7, 0.95, 0.96, 0.8], 3, (0.5, 0.95), 2.0, seed=0)
    assert sorted(chosen) == [((0, 1, 0), 0.6), ((0, 2, 0), 0.7), ((0, 3, 0), 0.95), ((0, 5, 0), 0.8)]
    assert len(select_replay(places, [0.7] * 6, 3, (0.5, 0.95), 0.5, seed=0)) == 1
    assert records.confidence(np.zeros(0, np.float32)) == 0.0


def test_an_attempt_counts_where_it_came_to_a_reply_without_an_error() -> None:
    assert is_played(episode("a", "1")) and not is_played(episode("a"))
    assert not is_played(episode("a", "1", finish_reason=FinishReason.ERROR))
    assert is_valid({"actions": [{"valid": True}]}) and not is_valid({"actions": []})
    assert not is_valid({"actions": [{"valid": True}, {"valid": False}]})
    assert key_of(episode("a", "1", group=3, member=2)) == "a#3.2"
    attempts = [episode("a", "1", success=True), episode("a", "1"), episode("a", "1", success=True)]
    assert records.success_rate(attempts) == pytest.approx(2 / 3) and records.success_rate([]) == 0.0
    shown = records.record(attempts[0])
    assert (shown["rows"], shown["world"], shown["task"], shown["score"]) == ([], "web", "a", 1.0)


@pytest.mark.parametrize(
    ("end", "facts"),
    [
        ("done", {"success": True}),
        ("unparsable", {"valid": False}),
        ("stuck", {"finish_reason": FinishReason.FAILED}),
        ("wrong", {"finish_reason": FinishReason.FAILED}),
        ("out of actions", {"finish_reason": FinishReason.TURNS}),
    ],
)
def test_how_an_attempt_ended(end: str, facts: dict[str, Any]) -> None:
    replies = ["a", "b", "b", "b"] if end == "stuck" else ["b", "b"]
    assert phases.ending(episode("a", *replies, **facts)) == end
    assert phases.ending(episode("a", "b", "b", "c", finish_reason=FinishReason.FAILED)) == "wrong"


def test_the_page_after_the_last_action_stands_where_the_last_one_did() -> None:
    own = episode("a", "1", "2")
    own.info["turns"][-1] |= {"message": "clicked\npage 1\nleft: 3", "next_state": "page 9"}
    after = records.turn_after(own, DialogueSettings())
    assert after == {"message": "clicked\npage 9\nleft: 3", "state": "page 9", "reply": ""}


def test_a_file_of_something_else_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"rows": 5}\n')
    with pytest.raises(OneiroError, match=r"a\.jsonl holds what is no episode"):
        list(records.read(tmp_path / "a.jsonl"))
    assert records.read_folder(tmp_path / "nowhere") == []


def test_a_demonstration_is_written_with_loss_on_its_reply_and_its_end(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    own = episode("a", "page 0: Up", "Down")
    form = RowFormat(chat, DialogueSettings(brief=True), "{state}: ")
    first, second = form.rows(own, page_weight=0.25)
    assert [segment.turn for segment in first.segments] == [1, 1, 1] and second.segments[-1].turn == 2
    prompt = chat.opening("page 0", "")
    begins, reply = chat.encode("page 0: "), [*chat.encode("Up"), chat.end]
    assert first.tokens.tolist() == [*prompt, *begins, *reply]
    assert first.weights("ce").tolist() == [0.25] * len(prompt) + [0.0] * len(begins) + [1.0] * len(reply)
    (plain, _) = form.rows(own)
    assert plain.weights("ce").tolist() == [0.0] * (len(prompt) + len(begins)) + [1.0] * len(reply)
    wordy = RowFormat(chat, DialogueSettings(brief=False), "")
    assert wordy.state(own.info["turns"][0]).tolist() == chat.opening("page 0", SYSTEM).tolist()
    assert len(wordy.rows(own)[0].segments) == 2


def test_only_replies_of_the_chosen_turns_carry_weight(tiny: LanguageModel) -> None:
    form = RowFormat(ChatFormat(tiny.tokenizer), DialogueSettings(brief=True), "")
    weighed = form.weigh((episode("a", "Up", "Down"), [1]))
    for number, row in enumerate(weighed.rows):
        page, reply = row.segments
        assert page.weights == {} and reply.weights == {"policy": float(number), "kl": float(number)}


def test_replies_that_were_almost_certain_are_not_imitated_again() -> None:
    def sampled(*chances: float) -> Row:
        logprobs = np.log(np.array(chances, np.float32))
        page, said = given([1, 2]), Segment(np.arange(len(chances)), True, logprobs=logprobs, params=SamplingParams())
        return Row([page, said])

    own = replace(episode("a", "1", "2", "3"), rows=[sampled(0.9, 0.5), sampled(1.0, 0.95), sampled(0.9, 1.0)])
    assert records.reply_probability(own, 0) == pytest.approx(0.45)
    shown = episode("b", "1", "2")  # a demonstration: nothing in it was sampled
    lessons = [(own, [0, 1, 2]), (own, [1]), (shown, range(2))]
    assert records.instructive(lessons, 0.92) == [(own, [0, 2]), (shown, [0, 1])]
    assert records.instructive(lessons, 1.0) == [(own, [0, 1, 2]), (own, [1]), (shown, [0, 1])]


def test_an_actor_in_memory_is_used_and_another_phases_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = object.__new__(phases.Phases)
    made.base, made.latest = Path("run"), None
    made.recipe, made.run = SimpleNamespace(), SimpleNamespace()  # type: ignore[assignment]
    loaded: list[Any] = []
    monkeypatch.setattr(phases.agents, "agent_after", lambda recipe, run, folder: loaded.append(folder) or folder)
    for k in (0, 0, 2, 2, 1):
        made.actor_after(k)
    assert loaded == [None, Path("run/phase_2"), Path("run/phase_1")]
