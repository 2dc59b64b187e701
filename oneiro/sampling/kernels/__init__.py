"""GPU kernels of sampling, each beside the plain form of what it computes."""
