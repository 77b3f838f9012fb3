"""Tests on executors that are processes of their own, and are killed."""
