"""Texts that tasks on the forum ask to be written."""

from __future__ import annotations

POSTS = (
    ("A week without a dishwasher", "It broke on Monday. What surprised me is how fast the sink fills up."),
    ("Best chair for long evenings", "My back asks for a better one. What do you sit on?"),
    ("Second-hand bikes: what to look for", "I have seen three so far and all of them needed new brakes."),
    ("How loud is your heat pump?", "Ours hums at night. Is that normal in winter?"),
    ("Lost a glove near the lake", "Grey, left hand, size M. It may hang on the fence by the boat house."),
    ("My first sourdough", "Dense, sour, and gone within an hour."),
    ("Looking for a quiet campsite", "Two adults, one small dog, no music."),
    ("Is a used camera worth it?", "The shutter count is 40,000 and the price is half."),
    ("Rain barrel questions", "How do you keep the mosquitoes out of it?"),
    ("What I learned from moving", "Label the boxes on two sides."),
)
COMMENTS = (
    "Thank you, this answered my question.", "I had the same problem last month.", "Which size did you take?",
    "Could you post a picture of it?", "I would wait for the spring sale.", "This worked for me as well.",
    "Please keep us posted.", "I disagree, but your second point is good.", "How long did it take in the end?",
    "A neighbour told me the opposite.",
)  # fmt: skip
BIOGRAPHIES = (
    "Gardener on weekends.", "I collect maps and old radios.", "Slow runner, fast reader.", "Bread, bikes and books.",
    "Mostly here for the recipes.", "Engineer by day, painter by night.", "Two cats, one boat.", "Learning Portuguese.",
)  # fmt: skip
TOPICS = (
    ("slow_travel", "Slow Travel", "Trips without planes and without hurry."),
    ("balcony_gardens", "Balcony Gardens", "Growing food on three square metres."),
    ("repair_cafe", "Repair Cafe", "Mending things instead of buying new ones."),
    ("night_trains", "Night Trains", "Sleeping on the way."),
    ("paper_maps", "Paper Maps", "For people who still fold them."),
    ("cold_water", "Cold Water Swimming", "Lakes, rivers and the sea from October to April."),
)
