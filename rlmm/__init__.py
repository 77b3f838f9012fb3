"""Remote log metadata manager: the metadata log, its rules and its view."""
