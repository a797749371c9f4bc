"""The roles of people, as groups: viewer, operator, administrator."""

from typing import Any

ROLES = ("viewer", "operator", "administrator")
# What an operator adds, changes and deletes. The frontier's other tables are the crawler's own.
OPERATED = ("campaign", "credential", "domainblock", "host", "scoperule", "seed")
ADMINISTERED = ("group", "user")
VIEWED = ("crawl", "frontier")


def make_roles(using: str = "default", **kwargs: Any) -> None:
    """Makes the groups, or gives them what a new version has brought; what else they may do is left alone."""
    from django.contrib.auth.models import Group, Permission

    permissions = Permission.objects.using(using)
    viewed = permissions.filter(content_type__app_label__in=VIEWED, codename__startswith="view_")
    operated = permissions.filter(content_type__app_label__in=VIEWED, content_type__model__in=OPERATED)
    administered = permissions.filter(content_type__app_label="auth", content_type__model__in=ADMINISTERED)
    parts_of = [viewed], [viewed, operated], [viewed, operated, administered]
    for name, parts in zip(ROLES, parts_of, strict=True):
        group, _ = Group.objects.using(using).get_or_create(name=name)
        group.permissions.add(*(one for part in parts for one in part))
