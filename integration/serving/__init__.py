"""An exported program behind FastAPI: many workers on one cache, killed while they work, beside eager's."""
