"""Puzzles: questions, games and a cube."""
