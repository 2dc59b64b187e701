from __future__ import annotations

import time

import numpy as np
import pytest

from oneiro.agents import reply as replies
from oneiro.agents.reply import TAG_TOKENS, read, substitute, write


def test_what_is_written_is_read_back() -> None:
    text = write(["Up", "Left"], "P _", "_ P", thought=" go ")
    reply = read(text, world_model=True)
    assert reply.formatted and reply.actions == ("Up", "Left")
    assert reply.body(reply.observation) == "P _" and reply.body(reply.prediction) == "_ P"


def test_an_empty_think_block_before_the_real_one_is_still_a_reply() -> None:
    reply = read("<think></think><think> hm </think> <answer> Up </answer>")
    assert reply.formatted and reply.actions == ("Up",)


@pytest.mark.parametrize(
    "text",
    [
        "Up",
        "<answer>Up</answer>",
        "<think>no end <answer>Up</answer>",
        "<answer>Up</answer><think>late</think>",
        "<think>x</think><answer>Up",
        "text before <think>x</think><answer>Up</answer>",
    ],
)
def test_other_forms_are_malformed_and_name_no_action(text: str) -> None:
    reply = read(text)
    assert not reply.formatted and reply.actions == ()


def test_a_world_model_reply_needs_both_states_in_order() -> None:
    assert not read("<think><observation>a</observation></think><answer>Up</answer>", world_model=True).formatted
    swapped = "<think><prediction>b</prediction><observation>a</observation></think><answer>Up</answer>"
    assert not read(swapped, world_model=True).formatted
    assert read(swapped).formatted


def test_surplus_actions_are_cut() -> None:
    assert read(write(["a", "b", "c"]), actions_per_turn=2).actions == ("a", "b")


def test_substitution_is_by_place_and_takes_any_text() -> None:
    reply = read(
        "<think><observation>1 _</observation> I think _ <prediction>x</prediction></think><answer>Up</answer>"
    )
    pieces = substitute(reply, r"\1 \g<0> $1", "2 2")
    assert "".join(text for _, text in pieces) == (
        r"<think><observation>\1 \g<0> $1</observation> I think _ "
        "<prediction>2 2</prediction></think><answer>Up</answer>"
    )
    assert [text for tag, text in pieces if tag] == [r"\1 \g<0> $1", "2 2"]


def test_reading_is_total_and_fast_on_hostile_text() -> None:
    rng = np.random.default_rng(0)
    parts = [*TAG_TOKENS, "||", "Up", "<", ">", "/", "\n", "\x00", "é", "<think", "answer>", " " * 50]
    slowest = 0.0
    for _ in range(20_000):
        text = "".join(parts[i] for i in rng.integers(0, len(parts), rng.integers(0, 30)))
        start = time.perf_counter()
        reply = read(text, world_model=bool(rng.random() < 0.5))
        slowest = max(slowest, time.perf_counter() - start)
        assert "".join(t for _, t in substitute(reply, "A", "B")).count("A") <= 1 + text.count("A")
    long = "<think>" * 50_000 + "<observation>" * 50_000 + "</think>" + "<answer>" + "||" * 50_000 + "</answer>"
    start = time.perf_counter()
    read(long, world_model=True)
    assert time.perf_counter() - start < 0.5 and slowest < 0.1


def test_without_states_undoes_the_world_model() -> None:
    from oneiro.systems.spa_data import without_states

    reply = replies.read(write(["Up"], "a", "b", thought=" hm "))
    assert without_states(reply) == write(["Up"], thought=" hm ")
