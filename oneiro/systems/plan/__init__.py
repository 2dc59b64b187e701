"""Planning with learned worlds: a model from play, search inside it, and the rows that such a claim needs."""
