"""The assets, one file for each stage."""
