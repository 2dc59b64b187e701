"""The code host, under the name that WebArena's tasks use."""
