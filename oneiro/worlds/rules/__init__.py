"""Worlds whose rules are drawn anew for each level."""
