"""`python -m oneiro_web serve` shows the sites to a person; `python -m oneiro_web validate` plays every template."""

from __future__ import annotations

import argparse

from oneiro_web.env import chosen_templates
from oneiro_web.errors import WebError
from oneiro_web.sites import serve as server
from oneiro_web.validate import examine, template_tasks


def main() -> None:
    parser = argparse.ArgumentParser("python -m oneiro_web", description=__doc__)
    commands = parser.add_subparsers(required=True)
    serving = commands.add_parser("serve", help="the five sites on this machine, for your own browser")
    serving.add_argument("--port", type=int, default=8000)
    serving.add_argument("--content", type=int, default=0, help="seed of the content")
    serving.set_defaults(run=serve)
    validating = commands.add_parser("validate", help="a scripted agent plays tasks of every template")
    validating.add_argument("--agent", default="oracle", help="oracle, random, idle, exit, na, cheat-file, ...")
    validating.add_argument("--tasks", type=int, default=1, help="tasks of each template")
    validating.add_argument("--site", action="append", default=[], help="only this site; may be repeated")
    validating.set_defaults(run=validate)
    options = parser.parse_args()
    try:
        options.run(options)
    except WebError as error:
        parser.exit(2, f"{error}\n")


def serve(options: argparse.Namespace) -> None:
    listening = server.listen(options.port)
    print(f"http://localhost:{options.port}/ lists the sites; Ctrl-C ends", flush=True)
    server.serve(listening, options.content)


def validate(options: argparse.Namespace) -> None:
    """Ends with 1 where the oracle did not solve a task, or anybody else did."""
    chosen_templates(tuple(options.site), ())
    rows = examine(options.agent, list(template_tasks(options.tasks, options.site)))
    wrong = [row for row in rows if row.score != (1.0 if options.agent == "oracle" else 0.0)]
    for row in wrong:
        print(f"{row.task.task_id}: {row.score:g} after {row.actions} actions; {'; '.join(row.reasons)}")
    print(f"{options.agent}: {sum(row.score == 1.0 for row in rows)} of {len(rows)} tasks with score 1")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
