"""Predicted physics as dynamics: maps taken apart and moved in, and what an answer makes of a state."""

from __future__ import annotations

from oneiro.runtime.seeds import generator
from oneiro.tasks.base import Malformed
from oneiro.tasks.rules.physics import PhysicsPredictor, PhysicsPredictorConfig, PhysicsSituation
from oneiro.tasks.rules.physics_dynamics import PhysicsDynamics, TruePhysics, move, read_tiles
from oneiro.worlds.rules.physics import Physics, draw_physics, draw_situation, show_map, show_sight

ROOM = ". # .\nA @ .\n. . *\nB key"


def test_a_map_taken_apart_is_the_same_map_and_its_sight_is_the_rooms() -> None:
    rng = generator("test", "tiles")
    for _ in range(50):
        physics = draw_physics(rng)
        room = draw_situation(rng, physics)
        tiles = read_tiles(show_map(physics, room))
        assert tiles.text == show_map(physics, room)
        assert tiles.sight == show_sight(physics, room)
        assert tiles.walker == room.walker


def test_a_displacement_moves_the_walker_and_uncovers_what_was_below() -> None:
    assert move(ROOM, "0") == ROOM
    assert move(ROOM, "DR") == ". # .\nA B .\n. . @\n* key"
    assert move(ROOM, "UU") is None


def test_an_answer_is_a_new_map_and_an_unreadable_one_is_none() -> None:
    asked = list[PhysicsSituation]()

    def answer(cases: object) -> list[str]:
        asked.extend(cases)  # type: ignore[call-overload]
        return ["L", "out", "RR"]

    state = PhysicsSituation((), ROOM, "")
    dynamics = PhysicsDynamics(PhysicsPredictor(PhysicsPredictorConfig(view="sight")), answer)
    (left,), (unread,), (outside,) = dynamics.predict([(state, "zo"), (state, "ka"), (state, "mu")])
    assert left.state == PhysicsSituation((), ". # .\n@ B .\n. . *\nA key", "")
    assert isinstance(unread.state, Malformed) and isinstance(outside.state, Malformed)
    assert asked[0] == PhysicsSituation((), "U # | R . | D . | L A | key", "zo")


def test_true_rules_change_all_and_true_displacements_only_the_walker() -> None:
    physics = Physics((1, 0, 2, 3), ("keys", "boxes"), (0, 0), ("#", "K", "L", "X", "Y"))
    state = PhysicsSituation((), "@ K .\n. . .\n. . *\n. none", "")
    ((whole,),) = TruePhysics({(): physics}).predict([(state, "zo")])
    ((walked,),) = TruePhysics({(): physics}, whole=False).predict([(state, "zo")])
    assert whole.state == PhysicsSituation((), ". @ .\n. . .\n. . *\n. key", "")
    assert walked.state == PhysicsSituation((), ". @ .\n. . .\n. . *\nK none", "")
