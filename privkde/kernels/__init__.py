"""LSQ families: public random feature maps whose inner products estimate a kernel, one file per family."""

from privkde.kernels.base import KernelChoice, LsqFamily, needs_unit_norm

__all__ = ["KernelChoice", "LsqFamily", "needs_unit_norm"]
