"""Attention over feature maps: built for a width, (batch, channels, height, width) kept."""
