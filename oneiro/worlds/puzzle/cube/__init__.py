"""A 2x2 cube."""
