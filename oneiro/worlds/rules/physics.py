"""The physics of small rooms, drawn anew for each: what the four moves are called, what the glyphs mean, two twists.

A `Physics` says what every word and glyph does. It acts on a `Room`, which knows roles and no glyphs: the same room
looks different under another physics, and the same text means something else.

Twists, two for each physics:

    switch   stepping on a switch opens or shuts all doors; a shut door stops the walker
    ice      a walker who enters ice slides on until something stops it or the ice ends
    wind     every third step goes where the wind blows, whatever the walker says
    one-way  a tile that can be entered in one direction only
    pads     a pad throws the walker two tiles further, always in the same direction
    keys     a lock stops a walker without a key; keys are picked up
    boxes    a pushed box slides until something stops it
    colours  after the second colour was touched every move goes the opposite way, until the first one is touched
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import NamedTuple

import numpy as np

WORDS = ("zo", "ka", "mu", "ri")
"""What a walker can say; a physics decides where each word leads."""
SHIFTS = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Rows and columns of up, right, down, left."""
LETTERS = "URDL"
"""Of moves, in displacements and before what lies in that direction."""
GLYPHS = tuple("ABCEFGHIJKMNOPQSTVWXYZ#$%&+=?!^~<>/:;_()")
"""Drawn for walls and the things of the twists; the letters of moves are not among them."""
FLOOR, WALL, GOAL = 0, 1, 2
TWISTS = ("switch", "ice", "wind", "one-way", "pads", "keys", "boxes", "colours")
SWITCH, DOOR, ICE, ONE_WAY, PAD, KEY, LOCK, BOX, FIRST, SECOND = range(3, 13)
THINGS: dict[str, tuple[int, ...]] = {
    "switch": (SWITCH, DOOR),
    "ice": (ICE,),
    "wind": (),
    "one-way": (ONE_WAY,),
    "pads": (PAD,),
    "keys": (KEY, LOCK),
    "boxes": (BOX,),
    "colours": (FIRST, SECOND),
}
"""The roles of tiles that belong to a twist, at most two."""
COUNTS = {WALL: 3, SWITCH: 2, DOOR: 3, ICE: 4, ONE_WAY: 4, PAD: 3, KEY: 2, LOCK: 3, BOX: 3, FIRST: 2, SECOND: 3}
"""How many of each lie in a room."""
EDGE, BARE, WALKER, TARGET, NOTHING = "|", ".", "@", "*", "-"
"""Glyphs that mean the same in every physics."""

PERMUTATIONS = tuple(permutations(range(4)))
PAIRS = tuple(combinations(TWISTS, 2))
HELD_OUT_PERMUTATIONS = frozenset({(1, 3, 2, 0), (2, 0, 3, 1), (3, 1, 0, 2), (0, 2, 1, 3), (2, 3, 0, 1), (0, 3, 2, 1)})
"""Meanings of the four words that training never has. The first four are a Latin square: each word has each direction,
so that none of them is a guess.
"""
HELD_OUT_PAIRS = frozenset(
    {
        ("switch", "ice"),
        ("wind", "keys"),
        ("one-way", "boxes"),
        ("pads", "colours"),
        ("ice", "boxes"),
        ("switch", "wind"),
        ("pads", "keys"),
    }
)
"""Pairs of twists that training never has, though it has each twist with others."""


@dataclass(frozen=True, slots=True)
class Physics:
    """The rules of one game."""

    moves: tuple[int, ...]
    """The direction of each word, where nothing interferes."""
    twists: tuple[str, ...]
    ways: tuple[int, ...]
    """A direction for each twist: of the wind, through a one-way tile, off a pad. The others have none to need."""
    glyphs: tuple[str, ...]
    """Of walls, then of the things of the first and the second twist, two for each."""

    def way(self, twist: str) -> int:
        return self.ways[self.twists.index(twist)]

    @property
    def shown(self) -> dict[int, str]:
        """The glyph of each role."""
        things = {FLOOR: BARE, GOAL: TARGET, WALL: self.glyphs[0]}
        for place, twist in enumerate(self.twists):
            things |= dict(zip(THINGS[twist], self.glyphs[1 + 2 * place :], strict=False))
        return things

    @property
    def split(self) -> str | None:
        """`eval` where neither the words' meaning nor the pair of twists is in training; None where one of them is."""
        new = (self.moves in HELD_OUT_PERMUTATIONS, self.twists in HELD_OUT_PAIRS)
        return "eval" if all(new) else None if any(new) else "train"


@lru_cache
def _choices(split: str | None) -> tuple[list[tuple[int, ...]], list[tuple[str, ...]]]:
    """The meanings of words and the pairs of twists of a split."""
    moves = [one for one in PERMUTATIONS if split is None or (one in HELD_OUT_PERMUTATIONS) == (split == "eval")]
    return moves, [one for one in PAIRS if split is None or (one in HELD_OUT_PAIRS) == (split == "eval")]


def draw_physics(rng: np.random.Generator, split: str | None = None) -> Physics:
    """Rules of a split; None: any rules."""
    moves, pairs = _choices(split)
    return Physics(
        moves[int(rng.integers(len(moves)))],
        pairs[int(rng.integers(len(pairs)))],
        tuple(rng.integers(4, size=2).tolist()),
        tuple(GLYPHS[place] for place in rng.permutation(len(GLYPHS))[:5]),
    )


class Room(NamedTuple):
    """A state: what lies where, where the walker is, and all that the rules remember."""

    cells: bytes
    """A role for each cell, row by row."""
    walker: int
    clock: int = 0
    """Steps, modulo three, where there is wind."""
    key: bool = False
    open: bool = False
    """Whether the doors are."""
    colour: int = 0
    """The colour touched last, `FIRST` or `SECOND`; 0: none yet."""

    @property
    def size(self) -> int:
        return round(len(self.cells) ** 0.5)


@lru_cache
def neighbours(size: int) -> tuple[tuple[int, ...], ...]:
    """[cells][direction]: the next cell, or -1 at the edge."""

    def beside(cell: int, down: int, right: int) -> int:
        row, column = cell // size + down, cell % size + right
        return row * size + column if 0 <= row < size and 0 <= column < size else -1

    return tuple(tuple(beside(cell, *shift) for shift in SHIFTS) for cell in range(size * size))


def pad_end(cell: int, way: int, size: int) -> int:
    """Where a pad throws to: two tiles on, or -1 beyond the edge."""
    table = neighbours(size)
    middle = table[cell][way]
    return table[middle][way] if middle >= 0 else -1


def advance(physics: Physics, room: Room, word: int) -> Room:
    """The room after a word was said."""
    cells, size = room.cells, room.size
    table = neighbours(size)
    if "wind" in physics.twists and room.clock == 2:
        way = physics.way("wind")
    else:
        way = physics.moves[word]
        way = (way + 2) % 4 if room.colour == SECOND else way

    def stops(cell: int) -> bool:
        role = cells[cell] if cell >= 0 else WALL
        return (
            role in (WALL, BOX)
            or (role == DOOR and not room.open)
            or (role == LOCK and not room.key)
            or (role == ONE_WAY and way != physics.way("one-way"))
        )

    walker, ahead = room.walker, table[room.walker][way]
    if ahead >= 0 and cells[ahead] == BOX:
        end = ahead
        while (beyond := table[end][way]) >= 0 and cells[beyond] == FLOOR:
            end = beyond
        if end != ahead:
            changed = bytearray(cells)
            changed[ahead], changed[end] = FLOOR, BOX
            cells, walker = bytes(changed), ahead
    elif not stops(ahead):
        walker = ahead
        while cells[walker] == ICE and not stops(beyond := table[walker][way]):
            walker = beyond
    clock = (room.clock + 1) % 3 if "wind" in physics.twists else 0  # a step that nothing depends on is not counted
    if walker == room.walker:
        return room._replace(clock=clock)
    if cells[walker] == PAD:
        end = pad_end(walker, physics.way("pads"), size)
        # Only onto bare floor: a throw never sets off another thing.
        walker = end if end >= 0 and cells[end] == FLOOR else walker
    role = cells[walker]
    if role == KEY:
        cells = cells[:walker] + bytes([FLOOR]) + cells[walker + 1 :]
    return Room(
        cells,
        walker,
        clock,
        room.key or role == KEY,
        room.open != (role == SWITCH),
        role if role in (FIRST, SECOND) else room.colour,
    )


def draw_room(rng: np.random.Generator, physics: Physics, size: int = 5) -> Room:
    """A room with the things of the twists, the goal, and the walker on bare floor."""
    order = rng.permutation(size * size).tolist()
    cells, table = bytearray(size * size), neighbours(size)
    reserved = set[int]()  # where pads throw to
    way = physics.way("pads") if "pads" in physics.twists else 0
    roles = [role for twist in physics.twists for role in THINGS[twist]]
    # Pads first: each needs a free end. The walker and the goal come last and lie on what is left.
    for role in sorted([*roles, WALL], key=lambda role: role != PAD):
        left = COUNTS[role]
        for cell in list(order):
            if not left:
                break
            end = pad_end(cell, way, size) if role == PAD else cell
            if cell in reserved or end < 0 or cells[end] != FLOOR:
                continue
            # Ice of one tile: how far a walker slides is seen two tiles ahead.
            if role == ICE and any(side >= 0 and cells[side] == ICE for side in table[cell]):
                continue
            cells[cell], left = role, left - 1
            order.remove(cell)
            if role == PAD:
                reserved.add(end)
    bare = [cell for cell in order if cell not in reserved]
    cells[bare[0]] = GOAL
    return Room(bytes(cells), bare[1])


def draw_situation(rng: np.random.Generator, physics: Physics, size: int = 5) -> Room:
    """A room at any moment of a game: the walker anywhere, and whatever the rules can remember."""
    room = draw_room(rng, physics, size)
    clock, key, shut, colour = rng.integers((3, 2, 2, 3)).tolist()
    return room._replace(
        clock=clock if "wind" in physics.twists else 0,
        key=bool(key) and "keys" in physics.twists,
        open=not shut and "switch" in physics.twists,
        colour=(0, FIRST, SECOND)[colour] if "colours" in physics.twists else 0,
    )


def displacement(before: Room, after: Room) -> str:
    """How far the walker came, as letters of unit moves: `UU`, `RDD`; `0` where it stayed."""
    (row, column), (below, right) = divmod(before.walker, before.size), divmod(after.walker, before.size)
    down, along = below - row, right - column
    return ("D" * down or "U" * -down) + ("R" * along or "L" * -along) or "0"


DISPLACEMENTS = tuple(
    ("D" * down or "U" * -down) + ("R" * right or "L" * -right) or "0"
    for down in range(-4, 5)
    for right in range(-4, 5)
    if abs(down) + abs(right) <= 4
)
"""Everything that `displacement` can say where ice is one tile long: a step, a slide and a throw are four tiles."""


def answers(physics: Physics, room: Room, words: Sequence[int]) -> str:
    """Each word with the displacement that follows it: `zo UU ka 0`."""
    return " ".join(f"{WORDS[word]} {displacement(room, advance(physics, room, word))}" for word in words)


def shortest(physics: Physics, room: Room, limit: int, target: int | None = None) -> list[int] | None:
    """The words of a shortest way to the goal, by breadth-first search over true states; None beyond `limit` steps.

    With a `target`, to that cell and not across the goal, which ends a game.
    """
    seen = {room}
    layer: list[tuple[Room, tuple[int, ...]]] = [(room, ())]
    for _ in range(limit):
        reached = []
        for state, said in layer:
            for word in range(4):
                after = advance(physics, state, word)
                if after in seen:
                    continue
                seen.add(after)
                ended = after.cells[after.walker] == GOAL
                if ended if target is None else after.walker == target:
                    return [*said, word]
                if not ended:
                    reached.append((after, (*said, word)))
        layer = reached
    return None


# Views ----------------------------------------------------------------------------------------------------------------


def status(physics: Physics, room: Room) -> list[str]:
    """What the rules remember, in the order of the twists: the step, the key, the doors, the colour."""
    memory = {
        "switch": "open" if room.open else "shut",
        "wind": str(room.clock),
        "keys": "key" if room.key else "none",
        "colours": physics.shown[room.colour] if room.colour else NOTHING,
    }
    return [memory[twist] for twist in physics.twists if twist in memory]


def show_map(physics: Physics, room: Room) -> str:
    """The whole room, then the tile below the walker and what the rules remember."""
    shown, size = physics.shown, room.size
    glyphs = [shown[role] for role in room.cells]
    under, glyphs[room.walker] = glyphs[room.walker], WALKER
    rows = [" ".join(glyphs[start : start + size]) for start in range(0, size * size, size)]
    return "\n".join([*rows, " ".join([under, *status(physics, room)])])


def show_sight(physics: Physics, room: Room) -> str:
    """Two tiles each up, right, down and left of the walker, then what the rules remember; one line."""
    arms = (f"{letter} {near} {far}" for letter, (near, far) in zip(LETTERS, _arms(physics, room), strict=True))
    return " ".join([*arms, *status(physics, room)])


def _arms(physics: Physics, room: Room) -> Iterator[tuple[str, str]]:
    shown, table = physics.shown, neighbours(room.size)
    for way in range(4):
        near = table[room.walker][way]
        far = table[near][way] if near >= 0 else -1
        yield (
            shown[room.cells[near]] if near >= 0 else EDGE,
            shown[room.cells[far]] if far >= 0 else EDGE,
        )


def read_map(physics: Physics, text: str) -> Room | None:
    """The room that `show_map` shows under this physics, or None. Total: any text."""
    if len(text) > 1000:
        return None
    *rows, (under, *memory) = [line.split(" ") for line in text.split("\n")]
    size, shown = len(rows), physics.shown
    roles = {glyph: role for role, glyph in shown.items()}
    glyphs = [glyph for row in rows for glyph in row]
    if not 2 <= size <= 16 or any(len(row) != size for row in rows) or glyphs.count(WALKER) != 1:
        return None
    walker = glyphs.index(WALKER)
    glyphs[walker] = under
    if any(glyph not in roles for glyph in glyphs):
        return None
    room = Room(bytes(roles[glyph] for glyph in glyphs), walker)
    # The few things that can be remembered are tried: what is shown alike is the same.
    colours = (0, FIRST, SECOND) if "colours" in physics.twists else (0,)
    for clock, key, doors, colour in product(range(3), (False, True), (False, True), colours):
        candidate = room._replace(clock=clock, key=key, open=doors, colour=colour)
        if status(physics, candidate) == memory:
            return candidate
    return None


VIEWS = {"map": show_map, "sight": show_sight}
