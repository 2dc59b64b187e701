"""What the store and its back office share: reading what people typed, paging, coming back after log-in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date

from starlette.exceptions import HTTPException
from starlette.routing import Match

from oneiro_web.sites.base import Visit

REQUIRED = "This is a required field."
EMAIL = re.compile(r"[^@\s<>\"']{1,64}@[^@\s<>\"'.]{1,64}(\.[^@\s<>\"'.]{1,64})+")


def row_id(visit: Visit, name: str = "id") -> int:
    """The id in the address; what cannot be one is a page that does not exist."""
    number = whole(visit.path[name])
    if number is None:
        raise HTTPException(404)
    return number


def whole(text: str, least: int = 0, most: int = 10**8) -> int | None:
    """A whole number between bounds; None if it is none."""
    text = text.strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    return number if least <= number <= most else None


def cents(text: str) -> int | None:
    """Dollars as typed (`12`, `12.5`, `$1,299.00`) in cents; None if they are none."""
    match = re.fullmatch(r"\$?(\d{1,3}(?:,\d{3}){1,2}|\d{1,7})(?:\.(\d{1,2}))?", text.strip(), re.ASCII)
    return int(match[1].replace(",", "")) * 100 + int((match[2] or "0").ljust(2, "0")) if match else None


def dollars(amount: int | None) -> str:
    """Cents as a field shows them."""
    return "" if amount is None else f"{amount / 100:.2f}"


def day(text: str) -> str:
    """A day as `2026-06-15`, typed so or as `6/15/2026`; '' if it is none."""
    text = text.strip()
    american = re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{4})", text, re.ASCII)
    parts = (american[3], american[1], american[2]) if american else text.split("-")
    try:
        return date(*(int(part) for part in parts if len(part) < 5)).isoformat()
    except (TypeError, ValueError):
        return ""


def like(text: str) -> str:
    """A pattern for `LIKE ? ESCAPE '!'` that finds `text` anywhere."""
    escaped = text[:100].replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


def missing(form: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """An error for each field that is empty."""
    return {name: REQUIRED for name in names if not form.get(name)}


def email_error(text: str) -> str:
    """What is wrong with an e-mail address; '' if nothing is."""
    return "" if EMAIL.fullmatch(text) else "Please enter a valid email address (Ex: johndoe@domain.com)."


def paged(visit: Visit, count: int, size: int) -> tuple[int, int, int]:
    """The page asked for, how many there are, and the offset of its first row. Beyond the last one is the last one."""
    pages = max(1, -(-count // size))
    page = min(visit.number("p"), pages)
    return page, pages, (page - 1) * size


def next_path(visit: Visit, home: str) -> str:
    """Where to go after log-in: the page that asked for it, if this site shows one there."""
    path = visit.form.get("next", "")
    scope = {"type": "http", "path": path, "method": "GET"}
    shown = any(page.matches(scope)[0] is Match.FULL for page in visit.site.pages)
    return path if shown and path.startswith("/") and not path.startswith("//") else home
