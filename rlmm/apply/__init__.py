"""The rules of acceptance: a committed record in, changes of the rows out."""
