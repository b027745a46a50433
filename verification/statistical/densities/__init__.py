"""Statistical checks of the published density: bias, variance, supRMSE."""
