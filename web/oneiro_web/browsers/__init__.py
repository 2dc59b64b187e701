"""Browsers behind one interface: text (in process) and Chromium."""
