"""Rulebook games as a prediction task: what does an action change, by rules that nobody has seen before?"""
