"""Settings, all from the environment. What each variable means stands in docs/operations.md."""

import os
from pathlib import Path

import environ
from celery.schedules import crontab
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from config.embedded import broker, postgres
from config.embedded.secret import secret_key
from config.execution import read as read_execution_settings

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(env.str("VAR_DIR", default=str(BASE_DIR / "var")))

DEBUG = env.bool("DEBUG", default=False)

# Without a DATABASE_URL this is somebody's own machine: the embedded database, and a secret made for this folder.
EMBEDDED = "DATABASE_URL" not in os.environ
SECRET_KEY = env.str("SECRET_KEY", default="") or (secret_key(VAR_DIR) if EMBEDDED else "")
if not SECRET_KEY:
    raise ImproperlyConfigured(
        "Set SECRET_KEY to 50 random characters or more; DATABASE_URL is set, so none is made."
    )
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost"])
WEB_PORT = env.int("WEB_PORT", default=8000)
SANDBOX_PORT = env.int("SANDBOX_PORT", default=8100)
BASE_URL = env.str("BASE_URL", default=f"http://127.0.0.1:{WEB_PORT}")
CSRF_TRUSTED_ORIGINS = [BASE_URL]
METRICS_TOKEN = env.str(
    "METRICS_TOKEN", default=""
)  # what a scraper of /metrics sends; unset: it is not there

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "pgtrigger",
    "django_htmx",
    "lucide",
    "csp",
    "rest_framework",
    "accounts",
    "ledger",
    "approvals",
    "workers",
    "config",
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
    "django_htmx.middleware.HtmxMiddleware",
    "config.middleware.ConsoleMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
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
                "approvals.context_processors.console",
            ]
        },
    }
]

EXECUTION = read_execution_settings(os.environ)

# A stopped process must give its locks back before its lease is over.
_milliseconds = int(EXECUTION.database_timeout * 1000)
_timeouts = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
_limits = " ".join(f"-c {name}={_milliseconds}" for name in _timeouts)
# A pooler that changes servers between transactions and does not follow prepared statements needs this off.
DATABASE_PREPARES = env.bool("DATABASE_PREPARES", default=True)
_database = env.db("DATABASE_URL", default=postgres.url(VAR_DIR / "postgres", "countersign"))
DATABASES = {
    "default": {
        **_database,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        # Django's own statements are never prepared; those of accounts/sql.py are, unless this is None.
        "OPTIONS": {
            **_database.get("OPTIONS", {}),
            "options": _limits,
            "prepare_threshold": 5 if DATABASE_PREPARES else None,
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "queue"
LOGOUT_REDIRECT_URL = "sign-in"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SESSION_COOKIE_AGE = 8 * 60 * 60
SESSION_COOKIE_HTTPONLY = True

# Plain HTTP is for one's own machine only: any other address gets cookies that never leave TLS.
_tls = BASE_URL.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = _tls
SECURE_HSTS_SECONDS = 31_536_000 if _tls else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = _tls
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _tls else None
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

USE_TZ = True
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
USE_I18N = False
STATIC_URL = "/static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "approvals.authentication.AgentKeyAuthentication",
        "approvals.authentication.PersonAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["approvals.parsers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "EXCEPTION_HANDLER": "config.problems.problem_response",
    "UNAUTHENTICATED_USER": None,
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 262_144  # bytes; a larger body is answered with 413

BROKER_DIR = Path(env.str("BROKER_DIR", default=str(VAR_DIR / "broker")))
CELERY_BROKER_URL = env.str("BROKER_URL", default=broker.URL)
CELERY_BROKER_TRANSPORT_OPTIONS = (
    broker.transport_options(BROKER_DIR) if broker.URL == CELERY_BROKER_URL else {}
)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = (
    None  # for ever: a worker works without it, and listens again when it is back
)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_DEFAULT_QUEUE = "doorbell"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"  # no night of the year has an hour twice
# Idle workers look by themselves; this is for those that never are.
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "workers.sweep", "schedule": max(EXECUTION.sweep * 5, 1.0)},
    "reconcile": {"task": "workers.reconcile", "schedule": 900.0},
    "prune": {"task": "workers.prune", "schedule": crontab(hour=3, minute=30)},
}

# The provider that `provider_key` tools reach: the sandbox, unless a key of Stripe's is configured.
STRIPE_API_KEY = env.str("STRIPE_API_KEY", default="")
STRIPE_WEBHOOK_SECRET = env.str("STRIPE_WEBHOOK_SECRET", default="")
REFUND_LEDGER_URL = env.str("REFUND_LEDGER_URL", default=postgres.url(VAR_DIR / "postgres", "refund_ledger"))
SANDBOX_URL = env.str("SANDBOX_URL", default=f"http://127.0.0.1:{SANDBOX_PORT}")

_TALKATIVE = ("stripe", "httpx", "httpcore", "urllib3", "kombu", "django.db.backends")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "config.logs.Line", "format": "{asctime} {levelname} {name} {message}", "style": "{"}
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    # Libraries that would write requests and statements with their parameters at a lower level.
    "loggers": {name: {"level": "WARNING"} for name in _TALKATIVE},
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO")},
}
