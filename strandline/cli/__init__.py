"""The command line: Typer commands, tables for people, JSON for scripts."""
