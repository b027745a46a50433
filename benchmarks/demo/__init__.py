"""The whole story on handwritten digits: `make demo`."""

from benchmarks.demo.data import DemoSettings
from benchmarks.demo.run import run_demo

__all__ = ["DemoSettings", "run_demo"]
