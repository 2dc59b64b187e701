"""The store, under the name that WebArena's tasks use."""
