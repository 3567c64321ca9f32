"""Models of Python values: one class for each kind that the evaluator understands."""
