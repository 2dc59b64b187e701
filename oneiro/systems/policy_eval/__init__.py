"""Policies evaluated inside a learned model, beside the true simulator (Real2Sim)."""
