"""The planner over HTTP: `create_app` builds the service, `privkde serve` runs it (extra `api`)."""

from privkde.service.app import create_app
from privkde.service.settings import Settings

__all__ = ["Settings", "create_app"]
