"""A local page over run folders: runs, curves, episodes and tokens; and play in a learned world beside the true one."""
