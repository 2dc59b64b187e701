"""Five server-rendered sites under WebArena's names, and the web of one episode."""

from oneiro_web.sites import admin, forum, gitlab, maps, shopping
from oneiro_web.sites.base import TODAY, Site, Store, Visit, insert, route
from oneiro_web.sites.web import Reply, Web

__all__ = ["HOSTS", "SITES", "TODAY", "Reply", "Site", "Store", "Visit", "Web", "insert", "route"]

SITES: dict[str, Site] = {}
"""Every site by WebArena's name."""

HOSTS: dict[str, Site] = {}
"""Every site by its hosts."""


def _add(site: Site) -> None:
    SITES[site.name] = site
    HOSTS[site.host] = HOSTS[f"{site.name.replace('_', '-')}.localhost"] = site


for _module in (shopping, admin, forum, gitlab, maps):
    _add(_module.SITE)
