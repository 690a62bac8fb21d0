"""Weights: safetensors beside a card, checked before a tensor is used; those of others by name, file or address."""

from zoo.pretrained.card import RUN_CARD, WeightCard, read_card
from zoo.pretrained.creation import create_pretrained, load_encoder, load_into
from zoo.pretrained.downloading import DownloadError, cache_folder
from zoo.pretrained.loading import (
    check_fingerprint,
    find_card,
    list_weights,
    load_card,
    load_classifier,
    load_pretrained,
    weight_folders,
)
from zoo.pretrained.report import LoadReport
from zoo.pretrained.saving import save_weights

__all__ = [
    "RUN_CARD",
    "DownloadError",
    "LoadReport",
    "WeightCard",
    "cache_folder",
    "check_fingerprint",
    "create_pretrained",
    "find_card",
    "list_weights",
    "load_card",
    "load_classifier",
    "load_encoder",
    "load_into",
    "load_pretrained",
    "read_card",
    "save_weights",
    "weight_folders",
]
