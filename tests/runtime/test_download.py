"""Downloads against a real server on this machine: resumed, bounded, checked, whole or absent."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneiro.cli import app
from oneiro.runtime import download as room
from oneiro.runtime import progress
from oneiro.runtime.download import Unreachable, download
from oneiro.runtime.errors import OneiroError

BODY = bytes(range(256)) * 400
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server:
    """Serves `body`; each connection ends after `at_once` bytes of it."""

    def __init__(self) -> None:
        self.body, self.tag, self.at_once, self.kind, self.ranges = BODY, '"one"', len(BODY), "text/plain", True
        self.size_is_sent = True
        self.asked: list[str | None] = []
        serving = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                serving.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/data.bin"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        if request.path != "/data.bin":
            request.send_error(404)
            return
        begin = 0
        if self.ranges and wanted and request.headers.get("If-Range") == self.tag:
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
        if begin and begin >= len(self.body):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(self.body)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        request.send_response(206 if begin else 200)
        request.send_header("Content-Type", self.kind)
        if self.size_is_sent:
            request.send_header("Content-Length", str(len(self.body) - begin))
        if self.tag:
            request.send_header("ETag", self.tag)
        if begin:
            request.send_header("Content-Range", f"bytes {begin}-{len(self.body) - 1}/{len(self.body)}")
        request.end_headers()
        request.wfile.write(self.body[begin : begin + self.at_once])


@pytest.fixture
def server() -> Iterator[Server]:
    serving = Server()
    thread = threading.Thread(target=serving.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serving
    serving.http.shutdown()
    serving.http.server_close()
    thread.join()


def fetch(server: Server, target: Path, sha256: str = SHA256, max_bytes: int = 10**6, seconds: float = 30.0) -> str:
    return download(server.url, target, max_bytes=max_bytes, seconds=seconds, sha256=sha256)


def test_a_file_arrives_whole_and_is_kept_by_the_next_call(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "data.bin"
    assert fetch(server, target) == "new"
    assert target.read_bytes() == BODY and [path.name for path in target.parent.iterdir()] == ["data.bin"]
    assert fetch(server, target) == "kept" and server.asked == [None]


def test_broken_connections_are_resumed_where_they_broke(server: Server, tmp_path: Path) -> None:
    server.at_once = 30_000
    assert fetch(server, tmp_path / "data.bin") == "new"
    assert (tmp_path / "data.bin").read_bytes() == BODY
    assert server.asked == [None, "bytes=30000-", "bytes=60000-", "bytes=90000-"]


def half(server: Server, target: Path) -> None:
    """Leave the first 1,000 bytes of a download, as a process that was killed does."""
    (target.parent / "data.bin.part").write_bytes(BODY[:1000])
    (target.parent / "data.bin.part.version").write_text(server.tag)


def test_a_later_process_goes_on_from_the_part(server: Server, tmp_path: Path) -> None:
    half(server, tmp_path / "data.bin")
    assert fetch(server, tmp_path / "data.bin") == "resumed"
    assert (tmp_path / "data.bin").read_bytes() == BODY and server.asked == ["bytes=1000-"]


def test_a_part_of_another_version_is_not_continued(server: Server, tmp_path: Path) -> None:
    half(server, tmp_path / "data.bin")
    server.tag, server.body = '"two"', BODY[::-1]
    fetch(server, tmp_path / "data.bin", sha256="")
    assert (tmp_path / "data.bin").read_bytes() == BODY[::-1]


@pytest.mark.parametrize("change", [{"ranges": False}, {"tag": ""}])
def test_a_server_that_cannot_resume_sends_it_all_again(server: Server, tmp_path: Path, change: dict) -> None:
    vars(server).update(change)
    half(server, tmp_path / "data.bin")
    fetch(server, tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == BODY


def test_a_part_that_is_whole_already_only_gets_its_name(server: Server, tmp_path: Path) -> None:
    half(server, tmp_path / "data.bin")
    (tmp_path / "data.bin.part").write_bytes(BODY)
    fetch(server, tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == BODY and len(server.asked) == 1


def test_wrong_bytes_are_never_put_in_place(server: Server, tmp_path: Path) -> None:
    server.body = b"x" + BODY[1:]
    with pytest.raises(OneiroError, match="checksum"):
        fetch(server, tmp_path / "data.bin")
    assert list(tmp_path.iterdir()) == []
    server.body = BODY
    assert fetch(server, tmp_path / "data.bin") == "new"


def test_a_file_put_there_by_hand_is_checked(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"something else")
    with pytest.raises(OneiroError, match=r"data\.bin has the checksum .* delete it"):
        fetch(server, tmp_path / "data.bin")
    assert server.asked == []


@pytest.mark.parametrize("size_is_sent", [True, False])
def test_a_file_that_is_too_large_is_refused(server: Server, tmp_path: Path, size_is_sent: bool) -> None:
    server.size_is_sent = size_is_sent
    with pytest.raises(OneiroError, match="larger than the 50,000 bytes"):
        fetch(server, tmp_path / "data.bin", max_bytes=50_000)
    assert not (tmp_path / "data.bin").exists()


def test_a_download_ends_at_its_deadline_and_goes_on_later(server: Server, tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="the same command goes on"):
        fetch(server, tmp_path / "data.bin", seconds=-1.0)
    assert fetch(server, tmp_path / "data.bin") in ("new", "resumed")


def test_a_web_page_is_not_the_file(server: Server, tmp_path: Path) -> None:
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(Unreachable, match="web page"):
        fetch(server, tmp_path / "data.bin", sha256="")
    assert not (tmp_path / "data.bin").exists()


def source(url: str) -> room.Source:
    file = room.File("data.bin", url, 10**6, SHA256)
    return room.Source("toy", "bytes", "https://example.org", "MIT", len(BODY), (file,), "oneiro use {folder}")


def test_the_command_downloads_and_says_what_comes_next(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "load_sources", lambda: {"toy": source(server.url)})
    done = CliRunner().invoke(app, ["data", "get", "toy", "--out", str(tmp_path / "toy")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "toy" / "data.bin").read_bytes() == BODY
    assert "licence: MIT" in done.output and "102,400" in done.output and f"oneiro use {tmp_path}" in done.output


def test_a_server_that_hangs_is_named_in_the_meantime(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first connection gets no answer in time, the second one the file."""
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.1)
    monkeypatch.setattr(room, "SILENCE_S", 0.35)
    monkeypatch.setattr(room, "load_sources", lambda: {"toy": source(server.url)})
    answer, asked = server.answer, []

    def late(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        time.sleep(0.5) if len(asked) == 1 else answer(request)

    monkeypatch.setattr(server, "answer", late)
    done = CliRunner().invoke(app, ["data", "get", "toy", "--out", str(tmp_path / "toy")])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if line.startswith("megabytes")]
    assert sum(line.endswith("waiting for 127.0.0.1: data.bin") for line in lines) >= 2
    assert len(asked) == 2


def test_an_unreachable_source_says_where_the_file_goes(server: Server, tmp_path: Path) -> None:
    gone = source(server.url.replace("data.bin", "gone.bin"))
    with pytest.raises(OneiroError, match=r"answers 404.*https://example\.org .*put it at .*toy/data\.bin") as error:
        list(room.fetch_files(gone, tmp_path / "toy"))
    assert "\n" not in str(error.value)


def test_nobody_at_the_address_is_one_line_too(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match=r"refused.*put it at"):
        list(room.fetch_files(source("http://127.0.0.1:9/data.bin"), tmp_path))


def test_more_than_the_disk_holds_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    huge = room.Source("huge", "", "", "", 10**18, source("http://127.0.0.1:9/data.bin").files, "")
    with pytest.raises(OneiroError, match="free: choose another --out"):
        list(room.fetch_files(huge, tmp_path / "not" / "yet"))


def test_the_list_names_every_source_with_its_licence() -> None:
    shown = CliRunner().invoke(app, ["data", "get"], env={"COLUMNS": "250"})
    assert shown.exit_code == 0
    for name in ("bytesized32", "bridge", "rt1", "webshop", "gsm8k", "miniwob"):
        assert f" {name} " in shown.output
    assert "CC BY 4.0" in shown.output and "124 GB" in shown.output


def test_a_wrong_name_names_the_nearest() -> None:
    with pytest.raises(OneiroError, match="did you mean 'gsm8k'"):
        room.find_source("gsm8")


def test_sources_are_encrypted_named_and_checked_in_form() -> None:
    for known in room.load_sources().values():
        names = [file.name for file in known.files]
        assert len(set(names)) == len(names) and known.page.startswith("https://")
        for file in known.files:
            assert file.url.startswith("https://") and re.fullmatch(r"([0-9a-f]{64})?", file.sha256)
            assert Path(file.name).name == file.name and file.max_bytes > 0


def test_shards_take_the_descriptions_and_so_many_files() -> None:
    bridge = room.find_source("bridge")
    assert len(bridge.files) == 2 + 1024 + 128
    assert [file.name for file in bridge.select(2)] == [
        "dataset_info.json",
        "features.json",
        "bridge_dataset-train.tfrecord-00000-of-01024",
        "bridge_dataset-train.tfrecord-00001-of-01024",
    ]
    assert len(room.find_source("gsm8k").select(1)) == 2
