"""What a network looks at, and how far to trust the picture of it.

>>> import torch, zoo
>>> model = zoo.create_model("resnet20", attention="cbam")
>>> gates = read_gates(model, torch.zeros(1, 3, 32, 32)).gates
>>> gates[0].name, gates[0].kind, len(gates)
('layer1.0.attention', 'channel', 18)
"""

from zoo.explain.attention_rollout import attention_rollout, last_attention
from zoo.explain.explanation import Explanation, explain_image
from zoo.explain.gates import Gate, GateReading, read_gates
from zoo.explain.grad_cam import grad_cam
from zoo.explain.heatmap import Heatmap
from zoo.explain.integrated_gradients import integrated_gradients
from zoo.explain.occlusion import occlusion
from zoo.explain.placement import Placement
from zoo.explain.spatial_gates import spatial_gates
from zoo.explain.token_weights import TokenAttention, read_token_attention
from zoo.explain.writing import write_explanation

__all__ = [
    "Explanation",
    "Gate",
    "GateReading",
    "Heatmap",
    "Placement",
    "TokenAttention",
    "attention_rollout",
    "explain_image",
    "grad_cam",
    "integrated_gradients",
    "last_attention",
    "occlusion",
    "read_gates",
    "read_token_attention",
    "spatial_gates",
    "write_explanation",
]
