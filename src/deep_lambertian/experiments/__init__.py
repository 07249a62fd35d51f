"""Experiments that train, infer and measure, each made by one command."""
