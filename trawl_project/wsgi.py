"""The WSGI application, for any server that speaks WSGI."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trawl_project.settings")

application = get_wsgi_application()
