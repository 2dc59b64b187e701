"""Robot arms on a table: Meta-World tasks, episodes of frames and actions, and real data in the same form."""
