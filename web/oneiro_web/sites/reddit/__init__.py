"""The forum, under the name that WebArena's tasks use."""
