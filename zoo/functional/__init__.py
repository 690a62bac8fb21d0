"""Functions the attentions and models are made of."""

from zoo.functional.attention import attention
from zoo.functional.attention_weights import attention_weights
from zoo.functional.linear_attention import linear_attention
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
from zoo.functional.scores import additive_scores, cosine_scores, dot_scores, scaled_dot_scores
from zoo.functional.softmax import stable_softmax

__all__ = [
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
    "padding_mask",
    "random_mask",
    "scaled_dot_scores",
    "sliding_window_mask",
    "stable_softmax",
    "strided_mask",
    "unite_masks",
    "window_partition_mask",
]
