"""Accounts and groups in the admin's look; schedules of django-celery-beat, which trawl makes itself, are not shown."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as PlainGroupAdmin
from django.contrib.auth.admin import UserAdmin as PlainUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django_celery_beat import admin as schedules  # registers them, and so must come first
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

assert schedules
for model in (User, Group, ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule):
    admin.site.unregister(model)


@admin.register(User)
class UserAdmin(PlainUserAdmin, ModelAdmin):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Nobody gives more than they have: only a superuser makes superusers, or hands out single permissions."""
        own = super().get_readonly_fields(request, obj)
        return own if request.user.is_superuser else (*own, "is_superuser", "user_permissions")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, obj) and super().has_delete_permission(request, obj)

    def _may(self, request: HttpRequest, obj: Any) -> bool:
        return obj is None or not obj.is_superuser or request.user.is_superuser


@admin.register(Group)
class GroupAdmin(PlainGroupAdmin, ModelAdmin):
    pass
