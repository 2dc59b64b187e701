"""RLVR on web pages."""
