"""RLVR on text games."""
