"""Object stores behind one narrow port."""
