"""Weights on disk: safetensors beside a card, checked before a tensor is used, and never a pickle."""

from zoo.pretrained.card import RUN_CARD, WeightCard, read_card
from zoo.pretrained.loading import (
    check_fingerprint,
    find_card,
    list_weights,
    load_card,
    load_into,
    load_pretrained,
    weight_folders,
)
from zoo.pretrained.saving import save_weights

__all__ = [
    "RUN_CARD",
    "WeightCard",
    "check_fingerprint",
    "find_card",
    "list_weights",
    "load_card",
    "load_into",
    "load_pretrained",
    "read_card",
    "save_weights",
    "weight_folders",
]
