"""How a collection is executed on arrays of users."""
