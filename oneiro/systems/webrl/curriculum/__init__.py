"""A curriculum that grows from failures: new tasks out of those an agent could not do, each with its own grader.

Operators work on a task's template and slots (WebRL asks a language model for text, and the text has no grader):

    resample    other content and slots, same template
    sibling     another template of the site that shares a skill
    simplify    a shorter sibling, or the same task from a nearer page
    complicate  a longer sibling
    paraphrase  the same task in other words

A candidate passes the filters in order: duplicates, overlap with the test splits, the admission gates (it can be done,
and cannot be done by doing nothing), and the critic's band. What the curriculum knows is plain JSON and part of a run's
state: the same state and phase give the same tasks.
"""
