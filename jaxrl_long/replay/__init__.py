"""The on-device ring and how its rows are written."""
