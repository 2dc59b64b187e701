"""Worlds on a grid."""
