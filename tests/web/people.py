"""People who are logged in."""

from django.contrib.auth.models import Group, User
from django.test import Client


def in_role(role: str) -> Client:
    """A browser of somebody in a role: viewer, operator, administrator, or superuser."""
    user = User.objects.create_user(role, password="right", is_staff=True, is_superuser=role == "superuser")
    if role != "superuser":
        user.groups.add(Group.objects.get(name=role))
    browser = Client(enforce_csrf_checks=False)
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return browser
