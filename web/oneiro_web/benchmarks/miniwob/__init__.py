"""MiniWoB++."""
