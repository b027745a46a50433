"""LSQ families: public random feature maps whose inner products estimate a kernel, one file per family."""

from privkde.kernels.gaussian import GaussianFamily
from privkde.kernels.hashed import ExponentialFamily, LaplacianFamily
from privkde.kernels.inner_product import IdentityFamily, SignFamily
from privkde.kernels.lsq_family import FAMILIES, MOST_PARAMETERS, KernelChoice, LsqFamily

FAMILIES |= {
    "gaussian": GaussianFamily,
    "inner-product": IdentityFamily,
    "inner-product-signs": SignFamily,
    "laplacian": LaplacianFamily,
    "exponential": ExponentialFamily,
}

__all__ = ["FAMILIES", "MOST_PARAMETERS", "KernelChoice", "LsqFamily"]
