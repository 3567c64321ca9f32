"""Programs of users who extend torch: operators and kernels of their own, in several forms."""
