"""An online shop: search, look, choose options, buy."""
