"""Chromium behind the same interface, by Playwright."""
