"""Arrays of numpy as tensors: models of arrays, scalars, types and functions, and what each does in torch.

`installed` says whether there is a numpy at all. `values` has the models, `elementwise`, `reducing`, `shaping`,
`joining`, `making` and `products` a table each from numpy's function to its torch form, `kinds` and `known_scalars` the
rules of models.
"""
