"""The whole story on handwritten digits: `privkde demo`."""

from privkde.demo.run import run_demo
from privkde.demo.settings import DemoSettings

__all__ = ["DemoSettings", "run_demo"]
