"""Doors to other libraries: one file each, named after the library. Nothing else imports them, and each imports its
library only; see docs/doors.md.
"""
