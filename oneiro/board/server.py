"""The board's server: pages over run folders, on this machine only unless told otherwise.

A `GET` changes nothing; the one write (a played session, saved as an episode) needs the token that the page
itself holds. Pages are rendered here, escaped, and may load nothing but their own stylesheet and script.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import parse_qs

import jinja2
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from oneiro.board import draw, views
from oneiro.board import play as players
from oneiro.board.folders import RunFolder, Runs
from oneiro.board.guard import FRAME_POLICY, LOOPBACK, Guard, same_token
from oneiro.board.tokens import token_rows
from oneiro.report.episodes import TRACES, compare, read_traces
from oneiro.report.page import PICTURES, differing_settings
from oneiro.report.plots import PALETTE
from oneiro.runtime.errors import OneiroError, printable

PAGES = Path(__file__).with_name("pages")
LIVE_S = 4
"""Seconds after which a page of a run at work looks again."""


class Board:
    """The pages."""

    def __init__(self, runs: Runs, token: str) -> None:
        self.runs, self.token, self.tables = runs, token, players.Tables()
        self._writing = threading.Lock()
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(PAGES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_inert,
        )
        self.templates.globals.update(
            link=views.link, draw=draw, shade=views.shade, clock=views.clock, number=views.number, compare=compare
        )
        self.files = {name: (PAGES / name).read_text(encoding="utf-8") for name in ("board.css", "board.js")}

    def routes(self) -> list[Route]:
        pages: dict[str, Callable[[Request], Response]] = {
            "/": self.all_runs,
            "/run": self.one_run,
            "/step": self.one_step,
            "/episode": self.one_episode,
            "/text": self.whole_text,
            "/compare": self.compare_runs,
            "/image": self.image,
            "/traces": self.traces,
            "/play": self.play,
            "/frame": self.frame,
            "/{name:str}": self.static,
        }
        return [Route("/play", self.save_play, methods=["POST"]), *(Route(path, page) for path, page in pages.items())]

    # Answers

    def page(self, request: Request, template: str, **data: Any) -> Response:
        """A page, or with `?export=1` the same as one file that needs no board."""
        exported = request.query_params.get("export") == "1"
        address = request.url.include_query_params(export=1)
        shown = {"exported": exported, "export": f"?{address.query}", "live": 0, "token": self.token, "up": "", **data}
        text = self.templates.get_template(template).render(query=request.query_params, **shown)
        if not exported:
            return HTMLResponse(_bytes(text))
        name = re.sub(r"[^\w.-]+", "-", data["title"])[:80]
        return HTMLResponse(
            _bytes(self.self_contained(text)), headers={"content-disposition": f'attachment; filename="{name}.html"'}
        )

    def self_contained(self, text: str) -> str:
        """A rendered page with stylesheet and script inside it, and no way out: links lose their addresses.

        Only our own markup can hold a bare quote, so that the patterns meet nothing that a model wrote.
        """
        css, js = self.files["board.css"], self.files["board.js"]
        hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (css, js)]
        policy = f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
        text = re.sub(r' (?:href|action)="(?!#)[^"]*"', "", text)
        text = re.sub(r' data-link="[^"]*"', ' data-link=""', text)
        head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{css}</style>'
        text = text.replace('<link rel="stylesheet">', head)
        return text.replace('<script src="board.js" defer></script>', "").replace(
            "</body>", f"<script>{js}</script></body>"
        )

    def error(self, request: Request, error: Exception) -> Response:
        line = str(error) if isinstance(error, OneiroError) else "something in these files cannot be shown"
        text = self.templates.get_template("error.html").render(
            title="Not here", line=line, exported=True, live=0, up="./", export="", token="", query={}
        )
        text = text.replace('<link rel="stylesheet">', '<link rel="stylesheet" href="board.css">')
        return HTMLResponse(_bytes(text), 404 if isinstance(error, OneiroError) else 500)

    # Pages

    def all_runs(self, request: Request) -> Response:
        query = request.query_params
        listed, counts = views.list_runs(self.runs.all(), query.get("q", ""), query.get("status", ""))
        pager, shown = views.Pager.of(listed, _whole(query.get("page")))
        running = any(run.status == "running" for run in shown)
        return self.page(
            request, "runs.html", title="Runs", runs=shown, pager=pager, counts=counts, live=LIVE_S * running
        )

    def one_run(self, request: Request) -> Response:
        run = self._run(request)
        figures, more = views.curves([run], every="all" in request.query_params)
        return self.page(
            request,
            "run.html",
            title=run.name,
            run=run,
            figures=figures,
            more=more,
            stages=views.stages_of(run),
            play=players.playable(run),
            images=[spec for spec in run.summary.get("images", []) if spec["file"].endswith(PICTURES)],
            live=LIVE_S * (run.status == "running"),
            up="./",
        )

    def one_step(self, request: Request) -> Response:
        run, query = self._run(request), request.query_params
        stage, wanted = query.get("stage", ""), _whole(query.get("step"))
        steps = run.steps_kept().get(stage, [])
        if not steps:
            raise OneiroError(f"{run.name} keeps no episodes of stage {stage}")
        # A curve has a point for every step; episodes are kept of some.
        step = min(steps, key=lambda kept: (abs(kept - wanted), kept))
        rows = run.episodes.index(stage, step)
        bars = draw.histogram([row.score for row in rows])
        kept = rows
        if (bar := _whole(query.get("bar"), -1)) in range(len(bars)):
            kept = [row for row in kept if draw.in_bar(row.score, bars[bar], bar == len(bars) - 1)]
        if outcome := query.get("outcome"):
            kept = [row for row in kept if row.success == (outcome == "won")]
        if words := query.get("q", "").strip():
            numbers = run.episodes.search(stage, step, words)
            kept = [row for row in kept if row.at in numbers]
        groups = views.group_rows(kept)
        pager, shown = views.Pager.of(groups, _whole(query.get("page")))
        place = steps.index(step)
        return self.page(
            request,
            "step.html",
            title=f"{stage}, step {step}",
            run=run,
            stage=stage,
            step=step,
            wanted=wanted,
            neighbours=(steps[place - 1] if place else None, steps[place + 1] if place + 1 < len(steps) else None),
            steps=steps,
            rows=rows,
            kept=kept,
            bars=bars,
            bar=bar,
            groups=shown,
            alike=sum(group.alike for group in groups),
            pager=pager,
            low=min((row.score for row in rows), default=0.0),
            high=max((row.score for row in rows), default=0.0),
            up=views.link("run", run=run.name),
        )

    def one_episode(self, request: Request) -> Response:
        run, stage, step, at = self._episode(request)
        rows, episode = run.episodes.index(stage, step), run.episodes.read(stage, step, at)
        group = [row for row in rows if row.group == rows[at].group]
        return self.page(
            request,
            "episode.html",
            title=f"{stage}, step {step}, episode {at}",
            run=run,
            stage=stage,
            step=step,
            row=rows[at],
            group=group,
            count=len(rows),
            turns=views.turn_views(episode),
            tokens=token_rows(run, stage, step, at, request.query_params.get("colour", "")),
            mean=fmean(row.score for row in group),
            hidden_turns=max(0, len(episode.get("turns") or ()) - views.MAX_TURNS),
            terms={
                str(name)[:80]: float(sum(value) if isinstance(value, list) else value)
                for name, value in (episode.get("terms") or {}).items()
            },
            error_text=str(episode.get("error") or "")[: views.MAX_TEXT],
            low=min(row.score for row in rows),
            high=max(row.score for row in rows),
            up=views.link("step", run=run.name, stage=stage, step=step),
        )

    def whole_text(self, request: Request) -> Response:
        """One text of a turn as it is, however long; browsers are told that it is nothing else."""
        run, stage, step, at = self._episode(request)
        turns, key = run.episodes.read(stage, step, at).get("turns") or [], request.query_params.get("part", "")
        turn = _whole(request.query_params.get("turn"))
        if turn >= len(turns) or key not in views.TITLES:
            raise OneiroError("this episode has no such text")
        return PlainTextResponse(_bytes(printable(str(turns[turn].get(key) or ""))))

    def compare_runs(self, request: Request) -> Response:
        query = request.query_params
        runs = [self.runs[name] for name in dict.fromkeys(query.getlist("run"))][: len(PALETTE)]
        if not runs:
            raise OneiroError("tick runs in the list, then compare them")
        places = list(views.places_to_compare(runs))
        files = {run.name: run.steps_kept() for run in runs}
        sides: list[Any] = [_place(query.get(side, "")) for side in ("one", "other")]
        if not all(side and side[2] in files.get(side[0], {}).get(side[1], ()) for side in sides):
            sides = list(views.first_pair(places))
        places += [side for side in sides if side and side not in places]  # an earlier step
        pairing = None
        if all(side is not None for side in sides):
            pairing = views.pair(*(self.runs[side[0]].episodes.index(side[1], side[2]) for side in sides if side))
        figures, more = views.curves(runs, every="all" in query)
        return self.page(
            request,
            "compare.html",
            title=" · ".join(run.name for run in runs),
            runs=runs,
            settings=differing_settings([run.recipe for run in runs], [run.name for run in runs]),
            places=places,
            sides=sides,
            pairing=pairing,
            figures=figures,
            more=more,
            live=LIVE_S * any(run.status == "running" for run in runs),
            up="./",
        )

    def traces(self, request: Request) -> Response:
        """The planner's decisions, with what it rejected."""
        run = self._run(request)
        shown = read_traces(run.file(TRACES).parent)
        up = views.link("run", run=run.name)
        return self.page(request, "traces.html", title=f"{run.name}: planner", run=run, traces=shown, up=up)

    def play(self, request: Request) -> Response:
        run, model, table, game, session = self._session(request)
        return self.page(
            request,
            "play.html",
            title=f"Play next to {model.name}",
            run=run,
            model=model,
            game=game,
            table=table,
            session=session,
            up=views.link("run", run=run.name),
        )

    def frame(self, request: Request) -> Response:
        """The true page of a session, as itself and inert: no script, no form, no address may be loaded."""
        *_, session = self._session(request)
        if session.document is None:
            raise OneiroError("this world has no pages")
        return HTMLResponse(_bytes(session.document), headers={"content-security-policy": FRAME_POLICY})

    async def save_play(self, request: Request) -> Response:
        """The one request that writes; a page of another site cannot know the token."""
        if "content-length" not in request.headers:
            return PlainTextResponse("say how long it is", 411)
        given = parse_qs((await request.body()).decode(errors="replace")).get("token", [""])[0]
        if not same_token(given, self.token):
            return PlainTextResponse("this form is of another board; load the page again", 403)
        return await run_in_threadpool(self._save, request)

    def _save(self, request: Request) -> Response:
        run, model, _, _, session = self._session(request)
        with self._writing:
            step = players.save(run, model.name, session)
        return RedirectResponse(views.link("episode", run=run.name, stage=players.STAGE, step=step, at=0), 303)

    def _session(self, request: Request) -> tuple[RunFolder, players.Playable, players.PlayTable, str, players.Session]:
        run, query = self._run(request), request.query_params
        model, table = self.tables.get(run, query.get("model", ""))
        game = query.get("game", "") or next(iter(table.games), "")
        if game and game not in table.games:
            raise OneiroError(f"no game is called {game}")
        mode: players.Mode = "free" if query.get("mode") == "free" else "step"
        actions = [action for action in query.getlist("do") if action.strip()]
        session = players.play(table, game, _whole(query.get("seed")), actions, mode, "ask" in query)
        return run, model, table, game, session

    def image(self, request: Request) -> Response:
        """A picture that the summary of a run names, of that run only."""
        run, name = self._run(request), request.query_params.get("file", "")
        named = {str(spec["file"]) for spec in run.summary.get("images", [])}
        path = run.file(name)
        if name not in named or path.suffix not in PICTURES or not path.is_file():
            raise OneiroError(f"{run.name} has no such picture")
        return Response(path.read_bytes(), media_type=f"image/{path.suffix[1:]}")

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.files:
            return self.error(request, OneiroError("there is no such page"))
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return Response(self.files[name], media_type=kind, headers={"cache-control": "no-cache"})

    # What a request names

    def _run(self, request: Request) -> RunFolder:
        return self.runs[request.query_params.get("run", "")]

    def _episode(self, request: Request) -> tuple[RunFolder, str, int, int]:
        query = request.query_params
        return self._run(request), query.get("stage", ""), _whole(query.get("step")), _whole(query.get("at"))


def _place(text: str) -> tuple[str, str, int] | None:
    """`run|stage|step`, as the form writes it."""
    parts = text.rsplit("|", 2)
    return (parts[0], parts[1], _whole(parts[2])) if len(parts) == 3 else None


def _whole(text: str | None, default: int = 0) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,12}", text) else default


def _inert(value: Any) -> Any:
    """Every value that a template writes: codes that turn or move text are written out."""
    return value if isinstance(value, Markup) else printable(value) if isinstance(value, str) else value


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="backslashreplace")


def make_app(places: Sequence[Path], token: str = "", closed: bool = False) -> Any:
    """The board as an ASGI application; `closed` asks for the token with every request."""
    token = token or secrets.token_urlsafe(24)
    board = Board(Runs(places), token)
    handlers: Any = {OneiroError: board.error, Exception: board.error}
    app = Starlette(routes=board.routes(), exception_handlers=handlers)
    return Guard(app, token, closed)


def serve(places: Sequence[Path], host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C."""
    import socket

    import uvicorn

    local = host in LOOPBACK
    token = secrets.token_urlsafe(24)
    app = make_app(places, token, closed=not local)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen()  # now, so that the address works from the moment it is printed
        except OSError as error:
            raise OneiroError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
        named = socket.gethostname() if host in ("0.0.0.0", "::") else host
        shown = f"[{named}]" if ":" in named else named
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        say(f"{address}{'' if local else f'?token={token}'}  (Ctrl-C ends it)")
        uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False)).run(sockets=[listening])
