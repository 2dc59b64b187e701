"""Worlds whose rules are drawn anew for each game, so that no table of earlier games predicts them."""
