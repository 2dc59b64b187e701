"""Before anything is rented: what a recipe needs: memory, and where the time of a step goes."""
