"""A world served by OpenEnv: its own validation, its own client in two sessions, and our client as a world."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import uvicorn
from openenv.core import GenericEnvClient

from oneiro.adapters.openenv import OpenEnvWorld, OpenEnvWorldConfig, WorldEnvironment, app
from oneiro.worlds.base import WorldLost

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
url = f"http://127.0.0.1:{port}"
server = uvicorn.Server(uvicorn.Config(app("sokoban", max_actions=3), port=port, log_level="warning"))
threading.Thread(target=server.run, daemon=True).start()
while not server.started:
    time.sleep(0.05)

validated = subprocess.run(["openenv", "validate", "--url", url, "--json"], capture_output=True, text=True)
if validated.returncode:
    sys.exit(f"openenv validate: {validated.stdout[-4000:]}\n{validated.stderr[-3000:]}")
report = json.loads(validated.stdout)

one, two = (GenericEnvClient(base_url=url).sync() for _ in range(2))
firsts = [client.reset(split="eval", index=number).observation for number, client in enumerate((one, two))]
steps = []
for number, client in enumerate((one, two)):
    for _ in range(3):
        result = client.step({"text": "Up" if number else "Right"})
    steps.append({"text": result.observation["text"], "reward": result.reward, "done": result.done})
count = one.state()
one.close(), two.close()
question = urllib.request.Request(
    f"{url}/sokoban/task_range",
    json.dumps({"split": "eval", "start": 4094}).encode(),
    {"Content-Type": "application/json"},
)
tasks = json.loads(urllib.request.urlopen(question).read())

world = OpenEnvWorld(OpenEnvWorldConfig(url=url))
shown, info = world.reset(seed=5, options={"split": "train"})
again = OpenEnvWorld(OpenEnvWorldConfig(url=url)).reset(seed=5, options={"split": "train"})
played = [world.step(action)[:4] for action in ("Up", "Left", "nonsense")]
lost = ""
try:
    OpenEnvWorld(OpenEnvWorldConfig(url="http://127.0.0.1:9")).reset(seed=0)
except WorldLost as error:
    lost = str(error)
page = WorldEnvironment("sokoban", {}).render_web({"text": "<script>"})
print(
    "RESULT",
    json.dumps(
        {
            "report": report,
            "firsts": firsts,
            "steps": steps,
            "state": count if isinstance(count, dict) else count.model_dump(),
            "tasks": tasks,
            "remote": [shown, info["key"], list(world.actions), world.instruction, played],
            "again": again[0] == shown,
            "lost": lost,
            "page": page,
        }
    ),
)
