"""Rooms whose rules are drawn: each twist on a room drawn by hand, the splits, the search."""

from __future__ import annotations

from dataclasses import replace

from oneiro.runtime.seeds import generator
from oneiro.worlds.check import check, worst
from oneiro.worlds.registry import make
from oneiro.worlds.rules.physics import (
    DISPLACEMENTS,
    HELD_OUT_PAIRS,
    HELD_OUT_PERMUTATIONS,
    PAIRS,
    PERMUTATIONS,
    TWISTS,
    WORDS,
    Physics,
    Room,
    advance,
    displacement,
    draw_physics,
    draw_room,
    draw_situation,
    read_map,
    shortest,
    show_map,
    show_sight,
)
from oneiro.worlds.rules.physics_world import PhysicsConfig, PhysicsWorld, TargetRoom

UP, RIGHT, DOWN, LEFT = range(4)


def rules(*twists: str, ways: tuple[int, int] = (RIGHT, RIGHT)) -> Physics:
    """Words 0 to 3 are up, right, down, left; # is a wall, A and B are of the first twist, C and E of the other."""
    pair = tuple(sorted(twists, key=TWISTS.index))
    return Physics((UP, RIGHT, DOWN, LEFT), pair, ways, ("#", "A", "B", "C", "E"))


def at(physics: Physics, text: str) -> Room:
    """A room from its middle rows of three or five glyphs and its last line."""
    room = read_map(physics, text)
    assert room is not None
    assert show_map(physics, room) == text
    return room


def walk(physics: Physics, room: Room, *words: int) -> str:
    """The map after some words."""
    for word in words:
        room = advance(physics, room, word)
    return show_map(physics, room)


def test_a_switch_opens_all_doors_and_shuts_them_again():
    physics = rules("switch", "boxes")
    room = at(physics, "@ A .\n. B .\n. B *\n. shut")
    opened = ". @ .\n. B .\n. B *\nA open"
    assert walk(physics, room, RIGHT) == opened
    assert walk(physics, room, RIGHT, DOWN) == ". A .\n. @ .\n. B *\nB open"
    assert walk(physics, room, RIGHT, RIGHT, LEFT) == ". @ .\n. B .\n. B *\nA shut"
    assert walk(physics, at(physics, ". @ .\n. B .\n. B *\nA shut"), DOWN) == ". @ .\n. B .\n. B *\nA shut"


def test_ice_carries_on_until_something_stops_the_walker_or_the_ice_ends():
    physics = rules("ice", "boxes")
    assert walk(physics, at(physics, "@ A .\n. . .\n. . *\n."), RIGHT) == ". A @\n. . .\n. . *\n."
    assert walk(physics, at(physics, "@ A #\n. . .\n. . *\n."), RIGHT) == ". @ #\n. . .\n. . *\nA"
    assert walk(physics, at(physics, "@ A A\n. . .\n. . *\n."), RIGHT) == ". A @\n. . .\n. . *\nA"
    # It can leave ice in another direction.
    assert walk(physics, at(physics, ". @ #\n. . .\n. . *\nA"), DOWN) == ". A #\n. @ .\n. . *\n."


def test_the_wind_takes_every_third_step():
    physics = rules("wind", "boxes", ways=(DOWN, UP))
    room = at(physics, "@ . .\n. . .\n. . *\n. 0")
    assert walk(physics, room, RIGHT) == ". @ .\n. . .\n. . *\n. 1"
    assert walk(physics, room, RIGHT, RIGHT) == ". . @\n. . .\n. . *\n. 2"
    assert walk(physics, room, RIGHT, RIGHT, LEFT) == ". . .\n. . @\n. . *\n. 0"
    # A step against the edge counts too.
    assert walk(physics, room, UP) == "@ . .\n. . .\n. . *\n. 1"


def test_a_one_way_tile_is_entered_in_its_direction_only():
    physics = rules("one-way", "boxes", ways=(RIGHT, UP))
    assert walk(physics, at(physics, "@ A .\n. . .\n. . *\n."), RIGHT) == ". @ .\n. . .\n. . *\nA"
    assert walk(physics, at(physics, ". A @\n. . .\n. . *\n."), LEFT) == ". A @\n. . .\n. . *\n."
    assert walk(physics, at(physics, ". @ .\n. . .\n. . *\nA"), LEFT) == "@ A .\n. . .\n. . *\n."


def test_a_pad_throws_two_tiles_in_its_direction_onto_bare_floor():
    physics = rules("pads", "boxes", ways=(DOWN, UP))
    assert walk(physics, at(physics, "@ A .\n. # .\n. . *\n."), RIGHT) == ". A .\n. # .\n. @ *\n."
    assert walk(physics, at(physics, "@ A .\n. . .\n. # *\n."), RIGHT) == ". @ .\n. . .\n. # *\nA"


def test_a_lock_opens_for_whoever_has_a_key():
    physics = rules("keys", "boxes")
    room = at(physics, "A @ B\n. . .\n. . *\n. none")
    assert walk(physics, room, RIGHT) == "A @ B\n. . .\n. . *\n. none"
    assert walk(physics, room, LEFT) == "@ . B\n. . .\n. . *\n. key"
    assert walk(physics, room, LEFT, RIGHT, RIGHT) == ". . @\n. . .\n. . *\nB key"


def test_a_pushed_box_slides_over_bare_floor():
    physics = rules("ice", "boxes")
    five = "@ C . . .\n. . . . .\n. . . . .\n. . . . .\n. . . . *\n."
    assert walk(physics, at(physics, five), RIGHT).startswith(". @ . . C\n")
    blocked = five.replace("@ C . . .", "@ C # . .")
    assert walk(physics, at(physics, blocked), RIGHT) == blocked
    short = five.replace("@ C . . .", "@ C . A .")
    assert walk(physics, at(physics, short), RIGHT).startswith(". @ C A .\n")


def test_after_the_second_colour_moves_are_reversed_until_the_first():
    physics = rules("colours", "boxes")
    # The first twist of the pair by order is boxes: its glyphs are A and B, those of the colours C and E.
    room = at(physics, ". @ E . .\n. . . . .\nC . . . .\n. . . . .\n. . . . *\n. -")
    assert walk(physics, room, RIGHT).startswith(". . @ . .")
    assert walk(physics, room, RIGHT).endswith("E E")
    assert walk(physics, room, RIGHT, RIGHT).startswith(". @ E . .")
    assert walk(physics, room._replace(colour=0), LEFT, DOWN, DOWN).endswith("C C")


def test_words_lead_where_the_permutation_says_and_displacements_are_spelt():
    physics = replace(rules("ice", "boxes"), moves=(LEFT, UP, RIGHT, DOWN))
    room = at(physics, ". . .\n. @ A\n. . *\n.")
    assert [displacement(room, advance(physics, room, word)) for word in range(4)] == ["L", "U", "R", "D"]
    assert displacement(Room(bytes(25), 0), Room(bytes(25), 11)) == "DDR"
    assert displacement(Room(bytes(25), 12), Room(bytes(25), 2)) == "UU"
    assert displacement(Room(bytes(25), 12), Room(bytes(25), 12)) == "0"
    assert len(DISPLACEMENTS) == 41


def test_the_sight_shows_two_tiles_in_each_direction_and_what_the_rules_remember():
    physics = rules("switch", "ice")
    assert show_sight(physics, at(physics, "A # B\n. @ C\n. . *\n. open")) == "U # | R C | D . | L . | open"


def test_training_and_evaluation_share_neither_words_nor_pairs_of_twists():
    assert set(PERMUTATIONS) > HELD_OUT_PERMUTATIONS
    assert set(PAIRS) > HELD_OUT_PAIRS
    for word in range(4):  # knowing the split tells nothing of a word
        assert {moves[word] for moves in HELD_OUT_PERMUTATIONS} == {0, 1, 2, 3}
    for twist in TWISTS:  # each single twist is trained, with others
        assert any(twist in pair for pair in set(PAIRS) - HELD_OUT_PAIRS)
    rng = generator("test")
    for split in ("train", "eval"):
        assert {draw_physics(rng, split).split for _ in range(50)} == {split}
    both = Physics((0, 2, 1, 3), ("switch", "ice"), (0, 0), ("#", "A", "B", "C", "E"))
    assert both.split == "eval"
    assert replace(both, moves=(0, 1, 2, 3)).split is None
    assert replace(both, twists=("ice", "wind")).split is None
    assert replace(both, moves=(0, 1, 2, 3), twists=("ice", "wind")).split == "train"


def test_the_sight_decides_a_drawn_situation():
    """Where two rooms of one physics look the same, every word does the same: the sight leaves out nothing."""
    rng = generator("test", "sight")
    for _ in range(20):
        physics, outcomes = draw_physics(rng), dict[tuple[str, int], str]()
        for _ in range(100):
            room = draw_situation(rng, physics)
            for word in range(4):
                outcome = displacement(room, advance(physics, room, word))
                assert outcome in DISPLACEMENTS
                assert outcomes.setdefault((show_sight(physics, room), word), outcome) == outcome


def test_the_search_finds_a_shortest_way():
    physics = rules("ice", "boxes")
    assert shortest(physics, at(physics, "@ A .\n# # .\n* . .\n."), 9) == [RIGHT, DOWN, DOWN, LEFT, LEFT]
    assert shortest(physics, at(physics, "@ A .\n# # .\n* . .\n."), 4) is None
    assert shortest(physics, at(physics, "@ # .\n# # .\n* . .\n."), 9) is None


def test_a_way_to_another_tile_does_not_cross_the_goal():
    physics = rules("ice", "boxes")
    room = at(physics, "@ * .\n. # .\n. . .\n.")
    assert shortest(physics, room, 9) == [RIGHT]
    assert shortest(physics, room, 9, target=2) == [DOWN, DOWN, RIGHT, RIGHT, UP, UP]


def test_another_goal_is_a_tile_that_nothing_marks_and_the_old_one_ends_in_vain():
    world = TargetRoom(PhysicsConfig())
    for seed in range(8):
        shown, info = world.reset(seed=seed, options={"split": "eval"})
        assert PhysicsWorld(PhysicsConfig()).reset(seed=seed, options={"split": "eval"})[0] == shown
        assert world.ceiling() == 1
        assert info["target"] != world.room.walker, "a step into a wall would be enough"
        while not world.over:
            _, reward, done, _, step = world.step(world.oracle() or "")
        assert done and step["success"] and reward == 1 and world.room.walker == info["target"]
    world.reset(seed=0, options={"split": "eval"})
    way = shortest(world.physics, world.room, 12)
    assert way is not None
    results = [world.step(WORDS[word]) for word in way]
    assert results[-1][1:3] == (0.0, True)
    assert world.ceiling() == 0


def test_reading_a_map_is_total():
    rng = generator("test", "read")
    for _ in range(200):
        physics = draw_physics(rng)
        room = draw_situation(rng, physics)
        shown = show_map(physics, room)
        assert read_map(physics, shown) == room
        cut = shown[: int(rng.integers(len(shown)))]
        assert read_map(physics, cut) != room
    for text in ("", "\n", "@", "@ .\n. .\n", "@ .\n. .\n. 7", "x" * 5000):
        assert read_map(physics, text) is None


def test_the_world_keeps_its_promises():
    findings = check("physics")
    assert worst(findings) == "ok", findings


def test_the_instruction_shows_steps_of_the_same_rules():
    world = make("physics", examples=8, view="sight")
    world.reset(seed=3, options={"split": "eval"})
    lines = world.instruction.split("\n")
    assert len(lines) == 5
    assert all(len(line.split(" ")) == len(world.render().split(" ")) + 8 for line in lines[3:])
    assert world.instruction == world.instruction


def test_rooms_have_one_goal_and_ice_of_one_tile():
    rng = generator("test", "rooms")
    for _ in range(200):
        physics = draw_physics(rng)
        room = draw_room(rng, physics)
        assert show_map(physics, room).count("*") == 1
        assert room.cells[room.walker] == 0
