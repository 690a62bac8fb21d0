"""Functions the attentions and models are made of."""

from zoo.functional.additive_attention import additive_attention, additive_attention_weights
from zoo.functional.attention import attention
from zoo.functional.attention_weights import attention_weights
from zoo.functional.linear_attention import linear_attention, linear_attention_weights
from zoo.functional.masks import (
    big_bird_mask,
    causal_mask,
    dilated_mask,
    global_mask,
    intersect_masks,
    padding_mask,
    random_mask,
    sliding_window_mask,
    strided_mask,
    unite_masks,
    window_partition_mask,
)
from zoo.functional.rotation import Rotation, rotate
from zoo.functional.scores import additive_scores, cosine_scores, dot_scores, scaled_dot_scores
from zoo.functional.softmax import stable_softmax
from zoo.functional.sparse_attention import sparse_attention, sparse_mask

__all__ = [
    "Rotation",
    "additive_attention",
    "additive_attention_weights",
    "additive_scores",
    "attention",
    "attention_weights",
    "big_bird_mask",
    "causal_mask",
    "cosine_scores",
    "dilated_mask",
    "dot_scores",
    "global_mask",
    "intersect_masks",
    "linear_attention",
    "linear_attention_weights",
    "padding_mask",
    "random_mask",
    "rotate",
    "scaled_dot_scores",
    "sliding_window_mask",
    "sparse_attention",
    "sparse_mask",
    "stable_softmax",
    "strided_mask",
    "unite_masks",
    "window_partition_mask",
]
