"""Copying: the choice of the next segment, and the steps of one copy."""
