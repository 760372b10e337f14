"""The roof: settings, addresses, the Celery application, and the services a machine of one's own embeds."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
