"""The admin, as a browser meets it."""
