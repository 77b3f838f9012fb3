"""The broker's plug-in as Maven builds and tests it."""
