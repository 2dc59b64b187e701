"""Pages of long lists, ids in paths, and log-in: what the forum and the code host share."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response
from starlette.routing import Route

from oneiro_web.sites.base import Visit, route


class IdConvertor(Convertor[int]):
    """The number of a row in a path; longer ones than any row has are no such page."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("id", IdConvertor())


@dataclass(frozen=True)
class Slice:
    """Which rows of a list a page shows."""

    page: int
    pages: int
    size: int
    total: int

    @property
    def offset(self) -> int:
        """Rows before this page."""
        return (self.page - 1) * self.size


def paged(visit: Visit, total: int, size: int) -> Slice:
    """The page of a list that the query asks for; past the end is the last one."""
    pages = max(1, -(-total // size))
    return Slice(min(visit.number("p"), pages), pages, size, total)


def chosen(visit: Visit, name: str, known: dict[str, str] | tuple[str, ...], default: str) -> str:
    """A parameter that must be one of the known ones."""
    value = visit.query.get(name, default)
    return value if value in known else default


def local(path: str, default: str) -> str:
    """A path of this site to go on to; anything that leads elsewhere becomes `default`."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else default


def show_log_in(visit: Visit) -> Response:
    """The log-in form."""
    return visit.page("login.html", errors={}, name="", next=local(visit.query.get("next", ""), visit.site.home))


def log_in(visit: Visit) -> Response:
    """Check name and password of the table `user`."""
    name, onward = visit.form.get("username", ""), local(visit.form.get("next", ""), visit.site.home)
    row = visit.one("SELECT name, password FROM user WHERE name = ?", name)
    if row is None or row["password"] != visit.form.get("password", ""):
        errors = {"password": "The user name or the password is wrong."}
        return visit.page("login.html", 422, errors=errors, name=name, next=onward)
    return visit.log_in(row["name"], onward)


def log_out(visit: Visit) -> Response:
    """End the session."""
    return visit.log_out(visit.site.home)


def account_routes(log_in_path: str, log_out_path: str) -> list[Route]:
    """Log-in and log-out at a site's own addresses."""
    return [
        route(log_in_path, show_log_in),
        route(log_in_path, log_in, post=True),
        route(log_out_path, log_out, post=True),
    ]
