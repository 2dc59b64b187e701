"""Web pages as a prediction task: what does an action change on a page?"""
