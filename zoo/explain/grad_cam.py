"""Grad-CAM: which places of the last feature map, or of the last layer's tokens, raise the logit."""

from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from zoo.explain.cells import follow_cells
from zoo.explain.gradients import check_image, gradient_of_logit, with_gradients
from zoo.explain.heatmap import Heatmap
from zoo.explain.token_weights import find_token_attention, find_token_layout
from zoo.insertion.tracing import is_feature_map


def grad_cam(model: nn.Module, images: Tensor, class_index: int, *, layer: str | None = None) -> Heatmap:
    """Return where the last map of the network raises the logit of a class.

    ``relu(sum_k a_k A_k)`` with ``a_k`` the mean over the places of ``d logit / d A_k``. Without ``layer``, A is the
    last map with more than one place that any module returns.

    In a transformer A are the tokens that its last attention is given, without the prefix: after the last block the
    grid has no gradient where only the class token is read. There ``a_k`` is each place's own gradient (HiResCAM):
    attention reads some places and not others, which a mean over all would hide. After a pooling over all places the
    two are the same.

    Args:
        model: Maps images to logits.
        images: One image, (1, channels, height, width).
        class_index: The class.
        layer: Qualified name of the module whose output is A.

    Raises:
        ValueError: There is no such map, or no gradient.

    Source:
        Selvaraju et al.: Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization, ICCV 2017,
        https://arxiv.org/abs/1610.02391; Draelos, Carin: Use HiResCAM instead of Grad-CAM for faithful explanations of
        convolutional neural networks, 2020, https://arxiv.org/abs/2011.08891
    """
    check_image(images)
    image_size = (images.shape[2], images.shape[3])
    watcher = _Watcher(model, layer)
    with with_gradients(model), follow_cells(model, image_size) as tracker, watcher.hooked():
        gradient = gradient_of_logit(model, images, class_index, watcher.get)
    features = _as_map(model, watcher.get(), image_size)
    weights = _as_map(model, gradient, image_size)
    if gradient.dim() == 4:
        weights = weights.mean(dim=(1, 2), keepdim=True)
    values = (weights * features).sum(0).clamp_min(0)
    size = (values.shape[0], values.shape[1])
    return Heatmap("grad_cam", "Grad-CAM", tracker.of(size).spread(values, image_size))


def _as_map(model: nn.Module, values: Tensor, image_size: tuple[int, int]) -> Tensor:
    """Return (channels, rows, columns) of a map or of tokens."""
    if values.dim() == 4:
        return values[0].detach()
    layout = find_token_layout(model, image_size)
    return layout.to_grid(values[0].detach().T)


class _Watcher:
    """Keeps the tensor to differentiate by, unharmed by operations in place that come after."""

    def __init__(self, model: nn.Module, layer: str | None) -> None:
        self._model, self._layer = model, layer
        self._kept: Tensor | None = None

    def hooked(self) -> ExitStack:
        stack = ExitStack()
        tokens = find_token_attention(self._model)
        if self._layer is not None:
            modules = dict(self._model.named_modules())
            if self._layer not in modules:
                raise ValueError(f"layer {self._layer!r} is no module of the model")
            stack.callback(modules[self._layer].register_forward_hook(self._keep_output).remove)
        elif tokens:
            last = list(tokens.values())[-1]
            stack.callback(last.register_forward_pre_hook(self._keep_input).remove)
        else:
            for module in self._model.modules():
                stack.callback(module.register_forward_hook(self._keep_map).remove)
        return stack

    def get(self) -> Tensor:
        if self._kept is None:
            where = "no module of the model" if self._layer is None else f"the module {self._layer}"
            raise ValueError(f"{where} returns a feature map with more than one place, which Grad-CAM needs")
        return self._kept

    def _keep_input(self, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._kept = inputs[0]
        return (inputs[0].clone(), *inputs[1:])

    def _keep_output(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        if not (is_feature_map(output) and output.shape[2] * output.shape[3] > 1):
            return output
        self._kept = output
        return output.clone()

    def _keep_map(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, Tensor) and not output.requires_grad:
            return output  # a constant, or a model without gradients, which is told later
        return self._keep_output(module, inputs, output)
