"""The map, under the name that WebArena's tasks use."""
