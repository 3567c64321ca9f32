"""What only a GPU shows. Collected on a machine that has one; `tools/gpu_check.py --part 7` runs it."""
