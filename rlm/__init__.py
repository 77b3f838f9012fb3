"""Remote log manager: pure planners and the shells that carry their decisions out."""
