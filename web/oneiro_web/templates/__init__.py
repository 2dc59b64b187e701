"""Our own tasks: templates with slots from a site's content, checks and an oracle script.

The templates of a site are in `oneiro_web.sites.SITE.tasks`; here is what they are made of, and the list of all.
"""
