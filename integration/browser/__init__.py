"""What needs a browser."""
