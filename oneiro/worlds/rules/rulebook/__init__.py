"""Rulebooks: text games whose rules, verbs and names are drawn for each game."""
