"""Delegated mode: the broker's own remote log manager decides, and this node carries out."""
