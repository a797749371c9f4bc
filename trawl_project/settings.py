"""All settings, read from the environment; every default is safe and needs no service.

The table of variables with their meaning stands in docs/settings.md.
"""

import os
import secrets
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import environ

from trawl_project.sqlite import INBOX_CACHE_KIB, MAIN_CACHE_KIB, options

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _at_least(variable: str, least: int, default: int) -> int:
    text = str(env.str(variable, default=str(default)))
    try:
        number = int(text)
    except ValueError:
        _refuse(f"{variable}: '{text}' is not a whole number; docs/settings.md lists the settings")
    if number < least:
        _refuse(f"{variable}: it must be at least {least}, not {number}")
    return number


def _log_level() -> str:
    level = str(env.str("TRAWL_LOG_LEVEL", default="WARNING")).upper()
    if level not in LOG_LEVELS:
        _refuse(f"TRAWL_LOG_LEVEL: '{level}' is none of {', '.join(LOG_LEVELS)}; docs/settings.md lists the settings")
    return level


def _refuse(why: str) -> NoReturn:
    print(f"trawl: {why}", file=sys.stderr)
    sys.exit(2)


DATA_DIR = Path(env.str("TRAWL_DATA", default="data")).expanduser().resolve()


def _secret_key() -> str:
    """The key in the environment, else the one kept 0600 in the data directory, made on first start."""
    given = str(env.str("TRAWL_SECRET_KEY", default=""))
    if given:
        return given
    path = DATA_DIR / "secret_key"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    key = secrets.token_urlsafe(50)
    DATA_DIR.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:  # another process of the same first start was quicker
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        file.write(key + "\n")
    return key


try:
    SECRET_KEY = _secret_key()
except OSError as error:
    sys.exit(f"trawl: cannot use the data directory {DATA_DIR}: {error.strerror}; name another with TRAWL_DATA")

DEBUG = env.bool("TRAWL_DEBUG", default=False)
ALLOWED_HOSTS = env.list("TRAWL_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("TRAWL_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "trawl_project.apps.UnfoldConfig",  # before the admin, whose templates it replaces
    "trawl_project.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "axes",
    "django_celery_beat",
    "frontier",
    "crawl",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",  # last: it answers for who is locked out
]
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
# Ten wrong passwords for one name from one address, and that pair waits a quarter of an hour.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False

ROOT_URLCONF = "trawl_project.urls"
WSGI_APPLICATION = "trawl_project.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- databases ---------------------------------------------------------------------------------


SQLITE = "django.db.backends.sqlite3"
URL_SCHEMES = ("sqlite", "postgres", "postgresql", "pgsql", "psql")


def _sqlite(path: str | Path, cache_kib: int) -> dict[str, Any]:
    return {"ENGINE": SQLITE, "NAME": str(path), "OPTIONS": options(cache_kib)}


def _database(url: str) -> dict[str, Any]:
    """What DATABASE_URL says. Raises ValueError."""
    if not url:
        return {"ENGINE": SQLITE, "NAME": str(DATA_DIR / "trawl.sqlite3")}
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ValueError("it is not a URL")
    if scheme not in URL_SCHEMES:
        raise ValueError(f"trawl does not use {scheme}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            database: dict[str, Any] = env.db_url_config(url)
        except (ValueError, UserWarning):  # their words may hold a part of the password
            raise ValueError("it cannot be read") from None
    if database["NAME"] in ("", ":memory:"):
        raise ValueError("it names no database")
    return database


def _databases() -> dict[str, Any]:
    try:
        default = _database(env.str("DATABASE_URL", default="").strip())
    except ValueError as error:
        _refuse(f"DATABASE_URL: {error}; use sqlite:///PATH or postgres://user@host:port/name")
    if default["ENGINE"] == SQLITE:
        name = Path(default["NAME"])
        # The inbox is a file of its own, so that a merge never keeps a worker from writing down links.
        inbox = name.with_name(name.stem + "-inbox.sqlite3")
        return {"default": _sqlite(name, MAIN_CACHE_KIB), "inbox": _sqlite(inbox, INBOX_CACHE_KIB)}
    default.setdefault("OPTIONS", {})["pool"] = {"min_size": 0, "max_size": 16}
    return {"default": default}


DATABASES = _databases()
DATABASE_ROUTERS = ["frontier.router.InboxRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


# --- queue ---------------------------------------------------------------------------------------

BROKER_URL = env.str("BROKER_URL", default="memory://")
# Seconds a host stays with the worker that claimed it without a sign of life from that worker.
LEASE_SECONDS = _at_least("TRAWL_LEASE_SECONDS", 10, default=60)  # it is renewed every 5 s
# Fetch queues that hosts are spread over; one host always goes to the same queue.
FETCH_QUEUES = _at_least("TRAWL_FETCH_QUEUES", 1, default=1)
# Host visits that one worker process holds at once.
VISITS_PER_WORKER = _at_least("TRAWL_VISITS_PER_WORKER", 1, default=1000)

# --- fetching --------------------------------------------------------------------------------------

# The seen index asks it which URLs were visited, see frontier/rebuild.py.
FRONTIER_HISTORY = "crawl.pages.KnownHistory"

# What is asked before the seen index, to spare work: cache, redis or a redis:// URL, rocksdb, bloom, cuckoo.
SEEN_PRECHECK = env.list("TRAWL_SEEN_PRECHECK", default=["cache"])

CONTACT = env.str("TRAWL_CONTACT", default="")
RESOLVE = env.list("TRAWL_RESOLVE", default=[])
NAME_SERVERS = env.list("TRAWL_NAME_SERVERS", default=[])
ALLOW_NETWORKS = env.list("TRAWL_ALLOW_NETWORKS", default=[])
CA_FILE = env.str("TRAWL_CA_FILE", default="")
PROXIES = env.list("TRAWL_PROXY", default=[])

# --- web ---------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
LOGIN_REDIRECT_URL = "admin:index"
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True  # serves the packages' own files, so there is nothing to collect first
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
# Alpine, which unfold's pages are made with, evaluates its attributes; a script in the page itself runs in no case.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'", "'unsafe-eval'"],
        "style-src": ["'self'", "'unsafe-inline'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}

UNFOLD = {
    "SITE_TITLE": "trawl",
    "SITE_HEADER": "trawl",
    "SITE_SYMBOL": "travel_explore",
    "SITE_URL": None,
    "SHOW_VIEW_ON_SITE": False,
    "STYLES": ["crawl.web.navigation.stylesheet"],
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "crawl.web.navigation.icon"}],
    # Tailwind's blue: white text on 600 and more has a contrast above 4.5.
    "COLORS": {
        "primary": {
            "50": "#eff6ff",
            "100": "#dbeafe",
            "200": "#bfdbfe",
            "300": "#93c5fd",
            "400": "#60a5fa",
            "500": "#3b82f6",
            "600": "#2563eb",
            "700": "#1d4ed8",
            "800": "#1e40af",
            "900": "#1e3a8a",
            "950": "#172554",
        }
    },
    "SIDEBAR": {"navigation": "crawl.web.navigation.navigation"},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": _log_level()},
}
