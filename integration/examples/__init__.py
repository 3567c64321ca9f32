"""Three complete examples, one for each kind of user; each is a test as well."""
