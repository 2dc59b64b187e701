"""The store's back office, under the name that WebArena's tasks use."""
