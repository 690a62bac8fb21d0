"""Backbones by name; each file here registers its own, so that a new file is a new model."""
