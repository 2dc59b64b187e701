"""Planning with any model of a world: propose actions, predict what they lead to, value that, choose."""
