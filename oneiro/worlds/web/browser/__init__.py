"""Browsers behind one interface: text (in process), Chromium, Lightpanda."""
