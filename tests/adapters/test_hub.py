"""The door to the Hugging Face Hub, against a server of our own that keeps what it is given."""

from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, constants
from transformers import AutoModelForCausalLM, AutoTokenizer

from oneiro.adapters import hub
from oneiro.cli import main
from oneiro.runtime.errors import OneiroError


class Kept:
    """What the server was given."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.refuse = 0


@pytest.fixture
def hub_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    kept = Kept()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length")
            body = self.rfile.read(int(length)) if length else self._chunks()
            if kept.refuse:
                return self._say({"error": "Invalid user token."}, kept.refuse)
            if self.path == "/api/repos/create":
                kept.created.append(json.loads(body))
                return self._say({"url": f"{constants.ENDPOINT}/me/lake"})
            if "/preupload/" in self.path:
                files = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in json.loads(body)["files"]
                ]
                return self._say({"files": files})
            if "/commit/" not in self.path:  # asks whether the card's head is well-formed
                return self._say({"errors": [], "warnings": []})
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    kept.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._say({"commitUrl": f"{constants.ENDPOINT}/me/lake/commit/1", "commitOid": "1", "success": True})

        def do_GET(self) -> None:
            self._say({"id": "me/lake", "siblings": []})

        def _chunks(self) -> bytes:
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        def _say(self, reply: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    # The environment's HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are read when the library is imported.
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield kept
    server.shutdown()
    thread.join()


def test_a_pushed_run_is_a_model_with_its_numbers(
    finished: Callable[[str, str], Path], hub_server: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished("spa/frozen-lake", "smoke")
    assert main(["push", str(run / "checkpoints" / "rl-spa"), "me/lake", "--private"]) == 0
    assert capsys.readouterr().out.strip().endswith("/me/lake")
    assert hub_server.created[0]["name"] == "lake" and hub_server.created[0]["organization"] == "me"
    assert hub_server.created[0].get("visibility") == "private" or hub_server.created[0].get("private") is True
    for name in ("recipe.yaml", "summary.json", "report.html"):
        assert hub_server.files[name] == (run / name).read_bytes()
    assert not {"run.json", "log.txt"} & set(hub_server.files), "these speak of the machine"

    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name, data in hub_server.files.items():
        (folder / name).write_bytes(data)
    AutoModelForCausalLM.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder)
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "oneiro" and "world-model" in card.data.tags
    table = json.loads((run / "summary.json").read_text())["tables"][0]
    (row,) = (row for row in table["rows"] if row["agent"].split(" ")[-1] == "spa")
    (success,) = (r for r in card.data.eval_results if r.metric_type == "success" and r.dataset_name == table["title"])
    assert success.metric_value == pytest.approx(row["success"]["value"])
    assert "| random |" in card.text and "| ceiling |" in card.text, "never without chance and ceiling"


def test_an_actor_of_a_phase_is_a_model_of_its_run(finished: Callable[[str, str], Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished("spa/frozen-lake", "smoke"), run)
    (run / "phase_1").mkdir()
    (run / "checkpoints/base").rename(run / "phase_1/actor")
    card = (hub.prepare(run, "me/web", tmp_path / "web") / "README.md").read_text()
    assert "Stage `phase_1`" in card


def test_mistakes_are_one_line_and_exit_2(
    finished: Callable[[str, str], Path], hub_server: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = finished("spa/frozen-lake", "smoke") / "checkpoints" / "rl-spa"
    hub_server.refuse = 401
    assert main(["push", str(checkpoint), "me/lake"]) == 2
    error = capsys.readouterr().err
    assert "the hub refused me/lake" in error and "hf auth login" in error and error.count("\n") == 1
    with pytest.raises(OneiroError, match="no name of a repository; write OWNER/NAME"):
        hub.prepare(checkpoint, "lake", tmp_path / "a")
    with pytest.raises(OneiroError, match="no folder at"):
        hub.prepare(tmp_path / "missing", "me/lake", tmp_path / "b")
    with pytest.raises(OneiroError, match=r"no table of .* has measured a row called 'nobody'"):
        hub.prepare(checkpoint, "me/lake", tmp_path / "c", row="nobody")
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "config.json").write_text("{}")
    with pytest.raises(OneiroError, match="is no run and lies in none"):
        hub.prepare(alone, "me/lake", tmp_path / "d")
