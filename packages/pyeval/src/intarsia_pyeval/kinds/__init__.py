"""The rules of each kind of value: what `do` and `codegen` do with it, and its methods."""
