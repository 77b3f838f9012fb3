"""Tests of logins and rights."""
