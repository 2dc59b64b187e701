"""Grid worlds as a prediction task: the text of a state and an action in, the text of the next state out."""
