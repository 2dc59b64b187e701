"""The back office's pages."""
