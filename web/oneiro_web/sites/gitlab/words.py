"""What the code host's projects are about."""

from __future__ import annotations

from dataclasses import dataclass

from oneiro_web.sites.dice import listed


@dataclass(frozen=True)
class Theme:
    """A kind of project: names, what it is, its language, its parts. A line of words is split at `|`."""

    names: str
    what: str
    language: str
    parts: str

    def words(self) -> dict[str, list[str]]:
        """The parts as a vocabulary."""
        return {"part": [word.strip() for word in listed(self.parts, "|")]}


THEMES = (
    Theme("tide-charts|harbour-clock", "Tide tables for small harbours, as a web page and a feed", "Python",
          "the tide table|the station map|the calendar export|the lunar offset|the feed"),
    Theme("ledgerline|coinpurse", "Plain-text bookkeeping with reports", "Rust",
          "the balance report|the currency parser|the import wizard|the budget view|the journal file"),
    Theme("mosaic-ui|trellis-ui", "Accessible interface components without a build step", "TypeScript",
          "the date picker|the menu button|the dialog|the colour palette|the tab panel"),
    Theme("seedling|sproutcast", "A static site generator for garden journals", "Go",
          "the template loader|the photo gallery|the RSS feed|the preview server|the sitemap"),
    Theme("nightjar|owlery", "A small uptime monitor that sends one e-mail, not twenty", "Go",
          "the alert rule|the status page|the retry queue|the certificate check|the digest e-mail"),
    Theme("papertrail|inkwell-scan", "Scan, sort and find household documents", "Python",
          "the text recognition|the tag editor|the thumbnail cache|the search index|the duplicate finder"),
    Theme("loomwork|weftline", "Draw weaving drafts and export them as charts", "JavaScript",
          "the draft editor|the colour strip|the PDF export|the undo stack|the treadle grid"),
    Theme("stargrid|skyatlas", "A star map that runs offline", "Rust",
          "the projection|the catalogue loader|the night mode|the label layout|the zoom control"),
    Theme("bikeshed|spokewise", "Route planning for slow cyclists", "Kotlin",
          "the elevation profile|the offline map|the turn list|the surface filter|the GPX export"),
    Theme("quorum|ballotbox", "Polls and minutes for small clubs", "Ruby",
          "the ballot form|the minutes template|the reminder job|the member list|the result chart"),
    Theme("breadboard|circuitry", "Simulate small circuits in a notebook", "Python",
          "the solver|the component library|the plot widget|the netlist reader|the unit checker"),
    Theme("tinypress|broadsheet", "Lay out a four-page newsletter from Markdown", "TypeScript",
          "the column layout|the footnotes|the image crop|the print preview|the font loader"),
    Theme("meshmap|contour", "Turn survey points into contour maps", "C++",
          "the triangulation|the contour labels|the shapefile reader|the colour ramp|the tile cache"),
    Theme("dotfiles|homebase", "Settings for shell, editor and terminal", "Shell",
          "the prompt|the install script|the editor theme|the key bindings|the backup job"),
    Theme("awesome-gardens|awesome-slow-web", "A curated list of good links", "Markdown",
          "the contents table|the link checker|the contribution guide|the tools section|the archive"),
)  # fmt: skip

CONDITIONS = listed(
    "on small screens|when the file is empty|in dark mode|with more than 1,000 rows|behind a proxy|after a restart|"
    "with right-to-left text|on leap days|when offline|with a screen reader|on slow disks|after the last update",
    "|",
)
ISSUE_TITLES = (
    "{part_up} breaks {condition}", "{part_up} is slow {condition}", "Add keyboard support to {part}",
    "404 on the page about {part}",
    "Document {part}", "Better error message from {part}", "Crash in {part} {condition}", "Make {part} configurable",
    "Flaky test for {part}", "Question: how does {part} work {condition}?", "Wrong result from {part} {condition}",
    "Translate {part}", "Remove the old version of {part}", "Support high contrast in {part}", "Redesign {part}",
)  # fmt: skip
ISSUE_TEXTS = (
    "Steps to reproduce: open the start page, use {part}, wait a few seconds.",
    "Expected: {part} works {condition}. Actual: nothing happens, and the log is empty.",
    "I see this since version {version}. Version {older} was fine.",
    "This came up in the last call. We agreed that {part} should be easier to find.",
    "A screenshot is not needed, the text says it all.",
    "I can work on this if somebody tells me where {part} is set up.",
    "It happens {condition}, but not otherwise.",
    "Please keep the old behaviour behind a setting for one release.",
)
NOTES = (
    "I can reproduce this {condition}.", "Thanks for the report! Could you try version {version}?",
    "This is fixed on main, please check.",
    "Let us move this to the next milestone.", "I would rather change {part} than add a setting.", "Good idea.",
    "Ping, any news?",
    "The same happens with {part}.", "I opened a merge request for this.", "Could we add a test for {part} first?",
    "Works for me now, thank you.",
    "Nice and small, I like it.", "Please rebase on main.", "One question: what happens {condition}?",
)  # fmt: skip
COMMITS = (
    "Fix {part} {condition}", "Speed up {part}", "Add tests for {part}", "Document {part}",
    "Rename things in {part}", "Refactor {part}",
    "Bump version to {version}", "Handle errors in {part}", "Remove dead code from {part}", "Update dependencies",
    "Simplify {part}",
    "Make {part} accessible", "Correct a typo in the README", "Cache results of {part}",
)  # fmt: skip
LABELS = (
    ("bug", "#b3261e", "Something does not work"), ("feature", "#1a7f37", "Something new"), ("documentation",
    "#0b57d0", "Text for people"),
    ("help wanted", "#7a4f01", "We would like a hand"), ("good first issue", "#6f42c1", "Small and well described"),
    ("question", "#00639b", "More information is needed"), ("accessibility", "#8a3ffc", "Usable by everybody"),
    ("performance", "#9a6700", "Speed and memory"),
)  # fmt: skip
MILESTONES = ("Spring cleaning", "Public beta", "Version 2.0", "Summer release", "Accessibility push")
GROUPS = (
    ("harborworks", "Harborworks", "Tools for people near the water"), ("openalmanac", "Open Almanac",
    "Free almanacs and calendars"),
    ("slowsoft", "Slowsoft", "Software that takes its time"), ("fieldlab", "Field Lab", "Measuring the world outdoors"),
    ("commonthread", "Common Thread", "Craft and code"), ("lighthouse-labs", "Lighthouse Labs",
    "Accessible by default"),
)  # fmt: skip
JOBS = (
    "Maintainer of small things.", "I like tests that can fail.", "Writes code between two cups of tea.",
    "Accessibility first.",
    "Former sailor, now debugging.", "Documentation is a feature.", "",
)  # fmt: skip
TOWNS = ("Port Ellery", "Westmarch", "Lindholm", "San Alder", "Brackwater", "Old Tern", "")
ENDINGS = {"Python": "py", "Rust": "rs", "TypeScript": "ts", "Go": "go", "JavaScript": "js", "Kotlin": "kt",
"Ruby": "rb", "C++": "cpp",
           "Shell": "sh", "Markdown": "md"}  # fmt: skip
LINE_COMMENTS = {"Python": "#", "Ruby": "#", "Shell": "#", "Markdown": ">"}
