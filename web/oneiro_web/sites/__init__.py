"""Five server-rendered sites under WebArena's names, and the web of one episode."""

from oneiro_web.sites.base import TODAY, Site, Store, Visit, insert, route
from oneiro_web.sites.gitlab.site import SITE as GITLAB
from oneiro_web.sites.map.site import SITE as MAP
from oneiro_web.sites.reddit.site import SITE as REDDIT
from oneiro_web.sites.shopping.site import SITE as SHOPPING
from oneiro_web.sites.shopping_admin.site import SITE as SHOPPING_ADMIN
from oneiro_web.sites.web import Reply, Web

__all__ = ["HOSTS", "SITES", "TODAY", "Reply", "Site", "Store", "Visit", "Web", "insert", "route"]

SITES: dict[str, Site] = {site.name: site for site in (SHOPPING, SHOPPING_ADMIN, REDDIT, GITLAB, MAP)}
"""Every site by WebArena's name."""

HOSTS: dict[str, Site] = {}
"""Every site by its hosts."""

for _site in SITES.values():
    HOSTS[_site.host] = HOSTS[f"{_site.name.replace('_', '-')}.localhost"] = _site
