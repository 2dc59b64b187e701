"""`oneiro bench board`: every page of a board over several runs answers, and shows the large one."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

import bench
from bench.board import LARGE, BoardSettings, pages, write_runs
from oneiro.board.server import make_app


def test_every_page_is_timed() -> None:
    [table] = bench.run("board", runs=3, rows=800, rounds=1)
    rows = table.data()["rows"]
    assert [row["page"] for row in rows] == [name for name, _ in pages()]
    assert all(row["first, ms"] > 0 and row["again, ms"] > 0 for row in rows)


def test_the_pages_show_the_large_run(tmp_path: Path) -> None:
    write_runs(tmp_path, BoardSettings(runs=3, rows=800))
    assert len(list(tmp_path.iterdir())) == 3
    with TestClient(make_app([tmp_path]), base_url="http://127.0.0.1") as client:
        shown = {name: client.get(address).text for name, address in pages()}
    assert all(LARGE in text for text in shown.values())
    assert "8 episodes" in shown["a step"]
