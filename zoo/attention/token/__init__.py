"""Attention over tokens: built for a width and a number of heads, (batch, tokens, embed_dim) kept."""
