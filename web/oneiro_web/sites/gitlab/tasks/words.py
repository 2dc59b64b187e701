"""Texts that tasks on the code host ask to be written."""

from __future__ import annotations

REPORTS = (
    ("Installer stops at 99 percent", "It happens on a fresh machine. The log ends without an error."),
    ("Add a quiet mode", "Nightly jobs should print nothing when all is well."),
    ("Dates are shown in the wrong order", "The list begins with the oldest entry, the export with the newest."),
    ("Link in the footer is dead", "It leads to a page that was removed last year."),
    ("Settings are lost after an upgrade", "I had to enter them again on two machines."),
    ("Support for large files", "Anything above two gigabytes is cut off without a warning."),
    ("Button is too small to tap", "On my phone I hit the one next to it half of the time."),
    ("Explain the exit codes", "The manual names three of them, the program returns seven."),
    ("Memory grows overnight", "After ten hours the process holds four times what it began with."),
    ("Undo removes two steps", "One press, and the last two changes are gone."),
)
"""Titles and descriptions of issues."""
REMARKS = (
    "I will look at this on Thursday.", "Can you add the output of the last run?", "Confirmed on two machines.",
    "The workaround from the manual helps for now.", "Please test with the nightly build.",
    "We should talk about this in the next meeting.", "My vote goes to the simpler solution.",
    "A failing test would help a lot here.", "Blocked until the next release is out.",
    "Fixed for me, thanks everybody.",
)  # fmt: skip
STATUSES = (
    "On holiday until Monday", "Reviewing merge requests", "Out for lunch", "Deep in the release notes",
    "Working from the train", "Back next week", "Please write, do not call", "Pairing today",
)  # fmt: skip
NEW_PROJECTS = (
    ("Recipe Box", "Family recipes as plain text files"), ("Weather Diary", "Notes from our roof-top weather station"),
    ("Chess Club", "Pairings and results of the chess club"), ("Bird Log", "Who was seen at the feeder and when"),
    ("Rehearsal Plan", "Dates, rooms and songs of the choir"), ("Bike Kitchen", "Opening times of the bike kitchen"),
    ("Star Party", "Plans for observation nights"), ("Allotment Map", "Which plot belongs to whom"),
    ("Book Swap", "A catalogue of books to give away"), ("Trail Notes", "Conditions of the paths around the lake"),
)  # fmt: skip
"""Names and descriptions."""
NEW_LABELS = (
    ("needs design", "#5843ad"), ("blocked", "#d10069"), ("quick win", "#009966"), ("security", "#cc0033"),
    ("discussion", "#6699cc"), ("regression", "#ed9121"), ("translation", "#3cb371"), ("wontfix", "#808080"),
)  # fmt: skip
NEW_MILESTONES = (
    "Autumn release",
    "Code freeze",
    "Winter cleanup",
    "Conference demo",
    "Version 3.0",
    "Long-term support",
)
REQUESTS = (
    "Ready for a first look", "Tidy up before the release", "Smaller and faster", "Address the last review",
    "Follow the new style guide", "Second attempt at this", "Part one of three", "Only the safe half of the change",
)  # fmt: skip
"""Titles of merge requests."""
