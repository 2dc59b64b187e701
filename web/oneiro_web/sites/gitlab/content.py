"""The code host's database and its content: projects, files, commits, issues, merge requests, people."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from oneiro_web.sites.base import TODAY, Store, insert
from oneiro_web.sites.dice import Dice, distinct, load_words, slug, stamp
from oneiro_web.sites.gitlab.schema import SCHEMA

WORDS = load_words("gitlab")

USER = "tidewright"
PASSWORD = "compass-2026"
USERS, PROJECTS, ISSUES, MERGE_REQUESTS, COMMIT_COUNT = 40, 30, 300, 80, 600
ROLES = {"guest": 10, "reporter": 20, "developer": 30, "maintainer": 40, "owner": 50}

Row = dict[str, Any]


def sha_of(*parts: object) -> str:
    """The name of a commit."""
    return hashlib.sha1("\0".join(map(str, parts)).encode()).hexdigest()


def fill(db: sqlite3.Connection, seed: int) -> None:
    """Write the content of a seed."""
    dice = Dice("web", "gitlab", seed)
    names = people(db, dice)
    teams(db, dice, names)
    projects, members, themes = write_projects(dice, names)
    insert(db, "member", [row for rows in members.values() for row in rows])
    everyone = {number: [row["user"] for row in rows] for number, rows in members.items()}
    branches = write_branches(dice, projects, themes)
    insert(db, "branch", [row for rows in branches.values() for row in rows])
    revisions(db, dice, projects, everyone, branches, themes)
    insert(db, "project", projects)
    files(db, dice, projects, themes)
    issues = write_issues(db, dice, projects, everyone, themes)
    requests = write_requests(dice, projects, everyone, branches, themes)
    insert(db, "issue", issues)
    insert(db, "merge_request", requests)
    notes(db, dice, issues, requests, everyone, themes)
    todos(db, dice, issues, requests, everyone)
    others = [name for name in names if name != USER]
    insert(db, "follow", [{"user": USER, "followed": name} for name in sorted(dice.sample(others, 4))])
    public = [row["id"] for row in projects if row["visibility"] == "public"]
    insert(db, "star", [{"user": USER, "project": number} for number in sorted(dice.sample(public, 5))])


def people(db: sqlite3.Connection, dice: Dice) -> list[str]:
    """The accounts: the one of the episode and others."""
    taken: set[str] = set()
    rows: list[Row] = []
    for number in range(USERS):
        full_name = distinct(lambda: " ".join(dice.person()), taken)
        first, last = full_name.lower().split()
        name = (
            USER
            if number == 0
            else dice.pick((f"{first}{last[0]}", f"{first}.{last}", f"{last}{dice.number(2, 99)}", first[0] + last))
        )
        if any(row["name"] == name for row in rows):
            name = f"{first}.{last}.{number}"
        rows.append({
            "name": name, "password": PASSWORD if number == 0 else f"{last}-{dice.number(1000, 9999)}",
            "full_name": full_name,
            "email": f"{first}.{last}@mail.example", "bio": dice.pick(WORDS["jobs"]),
            "location": dice.pick(WORDS["towns"]),
            "website": f"https://{first}{last}.example" if dice.chance(0.4) else "", "status": "",
            "joined": dice.moment(2400, 500),
        })  # fmt: skip
    insert(db, "user", rows)
    return [row["name"] for row in rows]


def teams(db: sqlite3.Connection, dice: Dice, names: list[str]) -> None:
    """The groups and who is in them."""
    for path, title, description in WORDS["groups"]:
        created = dice.moment(1900, 900)
        insert(
            db,
            "team",
            [{"path": path, "title": title, "description": description, "visibility": "public", "created": created}],
        )
        inside = dice.sample(names[1:], dice.number(3, 6)) + ([USER] if dice.chance(0.5) else [])
        rows = [{"team": path, "user": name, "role": "owner" if place == 0 else dice.pick(tuple(ROLES)[1:4]),
        "since": created}
                for place, name in enumerate(inside)]  # fmt: skip
        insert(db, "team_member", rows)


def write_projects(dice: Dice, names: list[str]) -> tuple[list[Row], dict[int, list[Row]], dict[int, Row]]:
    """Two projects a theme in different namespaces, with members of every role; the user owns five."""
    projects: list[Row] = []
    members: dict[int, list[Row]] = {}
    themes: dict[int, Row] = {}
    wanted = dice.sample([(theme, name) for theme in WORDS["themes"] for name in theme["names"]], PROJECTS)
    for number, (theme, path) in enumerate(wanted, 1):
        owner = USER if number <= 5 else dice.pick(names[1:])
        team = number > 5 and dice.chance(0.55)
        created = dice.moment(1500, 300)
        private = number in (2, 9, 17)
        projects.append({
            "id": number, "namespace": dice.pick(WORDS["groups"])[0] if team else owner, "path": path,
            "title": path.replace("-", " ").title().replace("Ui", "UI"), "description": theme["what"],
            "visibility": "private" if private else "public", "language": theme["language"], "branch": "main",
            "stars": dice.skewed(0, 900), "forks": dice.skewed(0, 90), "forked_from": None, "created": created,
            "updated": created,
        })  # fmt: skip
        themes[number] = theme
        others = [name for name in names[1:] if name != owner]
        rows = [{"project": number, "user": owner, "role": "owner", "since": created}]
        rows += [{"project": number, "user": name, "role": dice.pick(tuple(ROLES)[:4]), "since": dice.moment(290)}
                 for name in dice.sample(others, dice.number(3, 7))]  # fmt: skip
        role = {
            6: "maintainer",
            7: "developer",
            8: "reporter",
            10: "guest",
            11: "developer",
            12: "developer",
            13: "guest",
        }.get(number)
        if role:
            rows.append({"project": number, "user": USER, "role": role, "since": dice.moment(290)})
        members[number] = rows
    return projects, members, themes


def vocabulary(dice: Dice, theme: Row) -> dict[str, list[str]]:
    """A theme's words with those that are new for each text."""
    return with_version(tuple(theme["parts"]), dice.number(2, 9))


@cache
def with_version(parts: tuple[str, ...], minor: int) -> dict[str, list[str]]:
    """The words of a text about these parts and a version."""
    return {"part": list(parts), "part_up": [word[0].upper() + word[1:] for word in parts],
            "condition": WORDS["conditions"], "version": [f"1.{minor}"], "older": [f"1.{minor - 1}"]}  # fmt: skip


def title_of(
    dice: Dice, patterns: Sequence[str], words: dict[str, list[str]], project: int, taken: dict[int, set[str]]
) -> str:
    """A title that is new in its project."""
    return distinct(lambda: dice.write(dice.pick(patterns), words), taken.setdefault(project, set()))


def write_branches(dice: Dice, projects: list[Row], themes: dict[int, Row]) -> dict[int, list[Row]]:
    """The default branch of each project and two to four others."""
    branches = {}
    for project in projects:
        number = project["id"]
        parts = [slug(part.removeprefix("the ")) for part in themes[number]["parts"]]
        kinds = ("fix", "feature", "docs", "refactor")
        others = [f"{dice.pick(kinds)}/{part}" for part in dice.sample(parts, dice.number(2, 4))]
        branches[number] = [{"project": number, "name": name,
        "created": project["created"] if name == "main" else dice.moment(120)}
                            for name in ["main", *others]]  # fmt: skip
    return branches


def revisions(
    db: sqlite3.Connection, dice: Dice, projects: list[Row], everyone: dict[int, list[str]], branches: dict[int,
    list[Row]],
    themes: dict[int, Row],
) -> None:  # fmt: skip
    """All commits, oldest first; a project's last one is when it was updated."""
    rows = []
    for place in range(COMMIT_COUNT):
        project = projects[place % PROJECTS if place < 8 * PROJECTS else dice.skewed(0, PROJECTS - 1)]
        number = project["id"]
        people = everyone[number]
        branch = "main" if dice.chance(0.85) else dice.pick(branches[number])["name"]
        rows.append({
            "project": number, "branch": branch, "author": people[dice.skewed(0, len(people) - 1)],
            "message": dice.write(dice.pick(WORDS["commits"]), vocabulary(dice, themes[number])),
            "created": dice.moment(295),
        })  # fmt: skip
    rows.sort(key=lambda row: row["created"])
    for place, row in enumerate(rows, 1):
        row["sha"] = sha_of(place, *row.values())
        project = projects[row["project"] - 1]
        project["updated"] = max(project["updated"], row["created"])
    insert(db, "revision", rows)


def files(db: sqlite3.Connection, dice: Dice, projects: list[Row], themes: dict[int, Row]) -> None:
    """A small tree of files for each project."""
    rows = []
    for project in projects:
        theme, path = themes[project["id"]], project["path"]
        parts = theme["parts"]
        ending, mark = WORDS["endings"][theme["language"]], WORDS["line_comments"].get(theme["language"], "//")
        version = f"1.{dice.number(1, 9)}.{dice.number(0, 9)}"
        last = dice.write(dice.pick(WORDS["commits"]), vocabulary(dice, theme))
        texts = {
            "README.md": f"# {project['title']}\n\n{theme['what']}.\n\n## Parts\n\n" + "".join(f"- "
            f"{part}\n" for part in parts)
            + f"\n## Install\n\nDownload version {version} and run `make install`.\n",
            "LICENSE": f"{dice.pick(('MIT', 'Apache-2.0', 'GPL-3.0', 'BSD-3-Clause'))} License\n\nCopyright 2026 the "
            f"authors of {path}\n",
            "CHANGELOG.md": f"# Changes\n\n## {version}\n\n- {last}\n",
            "VERSION": f"{version}\n",
            "docs/index.md": f"# How to use {project['title']}\n\nStart with {parts[0]}, then look at {parts[1]}.\n",
            ".gitlab-ci.yml": "stages:\n  - test\n\ntest:\n  stage: test\n  script:\n    - make test\n",
        }  # fmt: skip
        for part in parts:
            name = slug(part.removeprefix("the ")).replace("-", "_")
            texts[f"src/{name}.{ending}"] = (
                f"{mark} {part[4:].capitalize()} of {project['title']}.\n{mark} Limit: {dice.number(1, 64) * 16} "
                f"rows.\n"
            )
            if dice.chance(0.4):
                texts[f"tests/test_{name}.{ending}"] = f"{mark} Checks {part}.\n"
        rows += [
            {"project": project["id"], "path": name, "text": text, "updated": project["updated"]}
            for name, text in texts.items()
        ]
    insert(db, "file", rows)


def write_issues(
    db: sqlite3.Connection, dice: Dice, projects: list[Row], everyone: dict[int, list[str]], themes: dict[int, Row]
) -> list[Row]:
    """All issues with labels and milestones, oldest first."""
    labels: dict[int, list[int]] = {}
    milestones: dict[int, list[int]] = {}
    label_rows: list[Row] = []
    milestone_rows: list[Row] = []
    for project in projects:
        number = project["id"]
        for name, colour, description in dice.sample(WORDS["labels"], dice.number(4, 7)):
            label_rows.append(
                {
                    "id": len(label_rows) + 1,
                    "project": number,
                    "name": name,
                    "colour": colour,
                    "description": description,
                }
            )
            labels.setdefault(number, []).append(len(label_rows))
        for title in dice.sample(WORDS["milestones"], dice.number(1, 3)):
            due = stamp(TODAY + timedelta(days=dice.number(-40, 200)))[:10]
            milestone_rows.append(
                {"id": len(milestone_rows) + 1, "project": number, "title": title, "due": due, "state": "active"}
            )
            milestones.setdefault(number, []).append(len(milestone_rows))
    insert(db, "label", label_rows)
    insert(db, "milestone", milestone_rows)
    moments = sorted(dice.moment(290) for _ in range(ISSUES))
    taken: dict[int, set[str]] = {}
    counts: dict[int, int] = {}
    issues: list[Row] = []
    tags: list[Row] = []
    for number, created in enumerate(moments, 1):
        project = projects[number % PROJECTS if number <= 4 * PROJECTS else dice.skewed(0, PROJECTS - 1)]["id"]
        words = vocabulary(dice, themes[project])
        people = everyone[project]
        counts[project] = counts.get(project, 0) + 1
        issues.append({
            "id": number, "project": project, "iid": counts[project],
            "title": title_of(dice, WORDS["issue_titles"], words, project, taken),
            "description": " ".join(
                dice.write(line, words) for line in dice.sample(WORDS["issue_texts"], dice.number(1, 3))),
            "author": dice.pick(people), "assignee": dice.pick(people) if dice.chance(0.5) else "",
            "milestone": dice.pick(milestones[project]) if dice.chance(0.3) else None,
            "state": "closed" if dice.chance(0.42) else "opened",
            "due": stamp(TODAY + timedelta(days=dice.number(3, 90)))[:10] if dice.chance(0.15) else "",
            "created": created, "updated": later(dice, created),
        })  # fmt: skip
        tags += [{"issue": number, "label": label} for label in sorted(dice.sample(labels[project], dice.number(0, 2)))]
    insert(db, "issue_label", tags)
    return issues


def later(dice: Dice, moment: str) -> str:
    """A time between a moment and today."""
    begun = datetime.fromisoformat(moment)
    return stamp(begun + (TODAY - begun) * dice.uniform())


def write_requests(
    dice: Dice,
    projects: list[Row],
    everyone: dict[int, list[str]],
    branches: dict[int, list[Row]],
    themes: dict[int, Row],
) -> list[Row]:
    """All merge requests, oldest first."""
    counts: dict[int, int] = {}
    taken: dict[int, set[str]] = {}
    rows: list[Row] = []
    for number, created in enumerate(sorted(dice.moment(200) for _ in range(MERGE_REQUESTS)), 1):
        project = projects[number % PROJECTS if number <= PROJECTS else dice.skewed(0, PROJECTS - 1)]["id"]
        words = vocabulary(dice, themes[project])
        people = everyone[project]
        author, reviewer, assignee = dice.sample(people, 3)
        counts[project] = counts.get(project, 0) + 1
        rows.append({
            "id": number, "project": project, "iid": counts[project],
            "title": title_of(dice, WORDS["commits"], words, project, taken),
            "description": dice.write("This changes {part} so that it works {condition}.", words),
            "author": author, "assignee": assignee if dice.chance(0.6) else "",
            "reviewer": reviewer if dice.chance(0.7) else "",
            "source": dice.pick(branches[project][1:])["name"], "target": "main",
            "state": dice.pick(("opened", "opened", "merged", "merged", "closed")), "created": created,
            "updated": later(dice, created),
        })  # fmt: skip
    return rows


def notes(
    db: sqlite3.Connection,
    dice: Dice,
    issues: list[Row],
    requests: list[Row],
    everyone: dict[int, list[str]],
    themes: dict[int, Row],
) -> None:
    """Comments on issues and merge requests, none later than the last update."""
    rows = []
    for kind, targets in (("issue", issues), ("merge_request", requests)):
        for target in targets:
            begun, ended = datetime.fromisoformat(target["created"]), datetime.fromisoformat(target["updated"])
            for share in sorted(dice.uniform() for _ in range(dice.skewed(0, 5))):
                words = vocabulary(dice, themes[target["project"]])
                rows.append({"kind": kind, "target": target["id"], "author": dice.pick(everyone[target["project"]]),
                             "body": dice.write(dice.pick(WORDS["notes"]), words),
                             "created": stamp(begun + (ended - begun) * share)})  # fmt: skip
    insert(db, "note", rows)


def todos(
    db: sqlite3.Connection, dice: Dice, issues: list[Row], requests: list[Row], everyone: dict[int, list[str]]
) -> None:
    """What waits for the user: things assigned, reviews asked for, mentions."""
    rows = []
    for kind, targets in (("issue", issues), ("merge_request", requests)):
        for target in targets:
            if target["state"] != "opened" or USER not in everyone[target["project"]] or target["author"] == USER:
                continue
            action = "assigned you" if target["assignee"] == USER else "mentioned you on" if dice.chance(0.12) else ""
            if target.get("reviewer") == USER:
                action = "requested a review of"
            if action:
                rows.append({"user": USER, "author": target["author"], "action": action, "kind": kind,
                "target": target["id"],
                             "created": target["updated"], "state": "pending"})  # fmt: skip
    rows.sort(key=lambda row: (row["created"], row["kind"], row["target"]))
    insert(db, "todo", rows)


STORE = Store("gitlab", SCHEMA, fill)
