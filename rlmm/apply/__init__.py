"""The rules of acceptance: they turn a committed record into changes of the rows."""
