"""RLVR on robot video."""
