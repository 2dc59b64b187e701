"""WebRL: web agents that improve in phases on tasks grown from their failures."""
