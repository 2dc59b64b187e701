"""A client of MCP plays a world: in this process, and with the server as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from oneiro.adapters.mcp import serve


async def play(client: Client) -> dict[str, object]:
    tools = {tool.name: sorted(tool.input_schema["properties"]) for tool in (await client.list_tools()).tools}
    first, other = [await call(client, "reset", seed=3, split="eval") for _ in range(2)]
    steps = [await call(client, "act", episode=first["episode"], action=word) for word in ("Down", "Down")]
    after = await client.call_tool("act", {"episode": first["episode"], "action": "Down"})
    beside = await call(client, "act", episode=other["episode"], action="Up")
    return {
        "tools": tools,
        "first": first,
        "other": other,
        "steps": steps,
        "lost": after.is_error and after.content[0].text,
        "beside": beside,
    }


async def call(client: Client, name: str, **given: object) -> dict[str, object]:
    result = await client.call_tool(name, given)
    assert not result.is_error, result
    return dict(result.structured_content)


async def main() -> None:
    async with Client(serve("frozen-lake", view="spaced")) as client:
        here = await play(client)
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "oneiro.adapters.mcp", "frozen-lake", "view=spaced"], env=dict(os.environ)
    )
    async with Client(stdio_client(program)) as client:
        there = await play(client)
    print("RESULT " + json.dumps({"here": here, "there": there}))


asyncio.run(main())
