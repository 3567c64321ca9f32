"""What a kernel costs by its schedule: what its launches do, counted, and prices of that."""
