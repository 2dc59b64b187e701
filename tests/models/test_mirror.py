"""A model on every rank is the model of rank 0: all kinds of tensors, what is sent again and what is not, its end."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn

from oneiro.models import mirror
from oneiro.runtime import team as teams
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.team import Team
from oneiro.sampling.engine import Engine, SamplingSettings
from tests.conftest import make_tiny
from tests.ranks import on_ranks


class Odd(nn.Module):
    """Tensors of every kind: odd numbers of bytes, ties, views, empty ones, frozen ones."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).view(2, 3))
        self.tied = self.weight
        self.frozen = nn.Parameter(torch.arange(5, dtype=torch.bfloat16), requires_grad=False)
        self.flags = torch.tensor([True, False, True])
        whole = torch.arange(8, dtype=torch.int16)
        self.even, self.turned = whole[::2], whole.view(2, 4).T
        self.nothing, self.neither = torch.empty(0), torch.empty(0, 3, dtype=torch.int64)
        self.words = {"name": "odd", "numbers": [1, 2]}

    def tensors(self) -> dict[str, torch.Tensor]:
        names = ("weight", "tied", "frozen", "flags", "even", "turned", "nothing", "neither")
        return {name: getattr(self, name) for name in names}


def seen(team: Team, number: int) -> list[dict[str, Any]]:
    """What every rank holds, as plain values."""
    model = mirror.held(team, number)
    found = {
        name: (t.tolist(), str(t.dtype), tuple(t.stride()), t.requires_grad) for name, t in model.tensors().items()
    }
    kinds = {name: type(tensor) for name, tensor in model.tensors().items()}
    return team.gather({"tensors": found, "kinds": kinds, "words": model.words, "tied": model.tied is model.weight})


def spoil(team: Team, number: int) -> None:
    """Other numbers on rank 1, so that one sees what is sent and what is not."""
    if team.rank == 1:
        with torch.no_grad():
            for tensor in mirror.held(team, number).tensors().values():
                tensor.fill_(9)


def kept(team: Team) -> list[list[int]]:
    return team.gather(sorted(team.kept))


def of(found: list[dict[str, Any]], rank: int, name: str) -> Any:
    return found[rank]["tensors"][name][0]


def test_a_mirrored_model_is_the_model() -> None:
    def work() -> list[dict[str, Any]]:
        team, model, other = teams.current(), Odd(), Odd()
        assert team is not None
        with torch.no_grad():
            other.weight.zero_()
        first, second = mirror.number_of(team, other), mirror.number_of(team, model)
        assert mirror.number_of(team, model) == second != first
        assert mirror.held(team, first) is other and mirror.held(team, second) is model
        found: list[dict[str, Any]] = team.together(seen, second)
        return found

    mine, theirs, third = on_ranks(3, work)
    assert mine["tensors"]["frozen"] == ([0, 1, 2, 3, 4], "torch.bfloat16", (1,), False)
    assert mine["tensors"]["even"][0] == [0, 2, 4, 6] and mine["tensors"]["turned"][2] == (1, 4)
    assert mine["kinds"]["weight"] is nn.Parameter and mine["kinds"]["flags"] is torch.Tensor and mine["tied"]
    assert theirs == mine == third


def test_what_changes_is_sent_again_and_nothing_else() -> None:
    def work() -> dict[str, list[dict[str, Any]]]:
        team, model = teams.current(), Odd()
        assert team is not None
        number, found = mirror.number_of(team, model), {}
        team.together(spoil, number)
        with torch.no_grad():
            model.even[1] = 7  # a view: its storage is sent, and with it the other views of it
        mirror.number_of(team, model)
        found["one storage"] = team.together(seen, number)
        mirror.number_of(team, model)
        with torch.no_grad():
            model.flags.fill_(False)
        mirror.updated(model)  # all ranks are said to have done so
        mirror.number_of(team, model)
        found["updated"] = team.together(seen, number)
        for tensor in (model.weight, model.frozen, model.flags):
            tensor.data.view(-1)[0] = 5  # leaves no trace
        mirror.number_of(team, model)
        found["unseen"] = team.together(seen, number)
        mirror.changed(model)
        mirror.number_of(team, model)
        found["changed"] = team.together(seen, number)
        mirror.changed(nn.Linear(1, 1))  # nobody holds it: nothing to do
        mirror.updated(None)
        return found

    found = on_ranks(2, work)
    assert of(found["one storage"], 1, "even") == [0, 7, 4, 6] == of(found["one storage"], 0, "even")
    assert of(found["one storage"], 1, "turned") == [[0, 4], [1, 5], [7, 6], [3, 7]]
    for name in ("one storage", "updated", "unseen"):
        assert of(found[name], 1, "weight") == [[9] * 3] * 2 and of(found[name], 1, "flags") == [True] * 3
    assert of(found["updated"], 0, "flags") == [False] * 3
    assert found["changed"][1] == found["changed"][0] and of(found["changed"], 0, "weight")[0][0] == 5


def test_ranks_forget_what_rank_0_no_longer_has() -> None:
    make_tiny()  # so that ranks need not import what it needs

    def work() -> list[list[list[int]]]:
        team, model = teams.current(), Odd()
        assert team is not None
        language = make_tiny()
        engine = Engine(language)
        engine.generate([[3]], 1, SamplingSettings(max_tokens=2))
        mirror.number_of(team, model)
        found = [team.together(kept)]
        del model, engine
        gc.collect()
        found.append(team.together(kept))
        mirror.number_of(team, language.backbone)  # still there, under its own number
        found.append(team.together(kept))
        return found

    full, less, last = on_ranks(2, work)
    # 1: the backbone, 2: the engine over it, 3: the model. Rank 0 keeps no model alive, only the bytes to be sent.
    assert full == [[-3, -1, 2], [-3, -1, 1, 2, 3]]
    assert less == last == [[-1], [-1, 1]]


def test_ranks_without_a_prompt_of_their_own_wait_for_the_others() -> None:
    def work() -> list[list[int]]:
        ((sample,),) = Engine(make_tiny()).generate(
            [[3, 4]], 1, SamplingSettings(max_tokens=4, ignore_eos=True), seed=5
        )
        return [sample.tokens.tolist()]

    alone = work()  # first, so that ranks need not import what it needs
    assert on_ranks(3, work) == alone


def test_weights_of_a_strange_type_are_refused_by_name() -> None:
    class Strange(torch.Tensor):
        pass

    def work() -> str:
        team, model = teams.current(), nn.Module()
        assert team is not None
        model.odd = torch.ones(2).as_subclass(Strange)  # type: ignore[attr-defined]
        with pytest.raises(OneiroError) as error:
            mirror.number_of(team, model)
        return str(error.value)

    assert "weights of type Strange cannot be shared" in on_ranks(2, work)
