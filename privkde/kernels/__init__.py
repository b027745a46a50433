"""LSQ families: public random feature maps whose inner products estimate a kernel, one file per family."""

from privkde.kernels.base import KernelChoice, LsqFamily

__all__ = ["KernelChoice", "LsqFamily"]
