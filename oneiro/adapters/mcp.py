"""MCP 2: any world as tools of a chat client. `python -m oneiro.adapters.mcp sokoban` speaks over stdin and stdout."""

from __future__ import annotations

import argparse
from collections import OrderedDict
from threading import Lock
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from oneiro.recipe import assignments
from oneiro.worlds import make
from oneiro.worlds.base import World

MAX_EPISODES = 64  # open at once; the least recently used one ends first


class OpenEpisodes:
    """The worlds that clients play in, by the number that `reset` gave. A client needs no session of its own."""

    def __init__(self, world: str, settings: dict[str, Any]) -> None:
        self.name, self.settings = world, settings
        self._open: OrderedDict[int, World] = OrderedDict()
        self._count, self._lock = 0, Lock()

    def reset(
        self, seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0, split: Literal["train", "eval"] = "eval"
    ) -> dict[str, Any]:
        """Begin an episode. The same seed and split give the same level. Returns the episode's number, what is to be
        done, the first state, and the words that are actions (none: actions are free text).
        """
        world = make(self.name, **self.settings)
        state, _ = world.reset(seed=seed, options={"split": split})
        with self._lock:
            self._count += 1
            number, self._open[self._count] = self._count, world
            if len(self._open) > MAX_EPISODES:
                self._open.popitem(last=False)[1].close()
        return {
            "episode": number,
            "instruction": world.instruction,
            "state": state,
            "actions": list(world.actions or ()),
        }

    def act(self, episode: int, action: Annotated[str, Field(max_length=1 << 16)]) -> dict[str, Any]:
        """Take one action of an episode. Returns the new state, the reward, and whether the episode is over and won."""
        with self._lock:  # a world takes one step at a time
            if episode not in self._open:
                raise ToolError(f"no episode {episode} is open; reset begins one")
            self._open.move_to_end(episode)
            state, reward, terminated, truncated, info = self._open[episode].step(action)
            if terminated or truncated:
                self._open.pop(episode).close()
        over = terminated or truncated
        return {"state": state, "reward": reward, "over": over, "success": bool(info["success"])}


def serve(world: str, **settings: Any) -> MCPServer:
    """The server, to be run over any of the library's transports."""
    first = make(world, **settings)  # a wrong name or setting shows now, and not to the first client
    server = MCPServer(f"oneiro-{world.replace(':', '-')}", instructions=first.about or first.name)
    episodes = OpenEpisodes(world, settings)
    server.tool()(episodes.reset)
    server.tool()(episodes.act)
    return server


def main() -> None:
    """Offer a world to an MCP client: over stdin and stdout, or with --port over HTTP on this machine."""
    parser = argparse.ArgumentParser(prog="python -m oneiro.adapters.mcp", description=main.__doc__)
    parser.add_argument("world", help="a world, or world:variant")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    server = serve(given.world, **assignments(given.settings))
    if given.port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
