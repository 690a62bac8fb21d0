"""The words that every vocabulary of captions begins with, and what they stand for."""

PAD, START, END, UNKNOWN = range(4)
"""Filling behind the end; what stands before the first word; the end; a word that is not in the vocabulary."""

SPECIAL_WORDS = ("<pad>", "<start>", "<end>", "<unknown>")
