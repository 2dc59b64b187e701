"""The store's pages."""
