"""Programs that combine packages, and the tests that hold the whole together."""
