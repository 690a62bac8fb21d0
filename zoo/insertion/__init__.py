"""Attention put into networks that exist already, at the identity, and taken out again."""

from zoo.insertion.attachment import attention_parameters
from zoo.insertion.families import FAMILIES
from zoo.insertion.freezing import freeze_backbone, unfreeze_backbone
from zoo.insertion.inserting import insert_attention, remove_attention
from zoo.insertion.latency import LatencyRatio
from zoo.insertion.report import InsertedGate, InsertionReport

__all__ = [
    "FAMILIES",
    "InsertedGate",
    "InsertionReport",
    "LatencyRatio",
    "attention_parameters",
    "freeze_backbone",
    "insert_attention",
    "remove_attention",
    "unfreeze_backbone",
]
