"""Several processes on gloo: what they compile, and that they meet."""
