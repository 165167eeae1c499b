"""The `kbeval` command."""
