"""Names: registered once, looked up with a suggestion, discovered without a list."""

import re

import pytest

from zoo.registry import ATTENTION, DATASETS, MODELS, TOKEN_ATTENTION, Registry, suggest


def test_an_unknown_name_gets_the_nearest_and_the_whole_list():
    with pytest.raises(ValueError, match=r"unknown attention 'cbma'\. Did you mean 'cbam'\? Known: .*eca.*se"):
        ATTENTION["cbma"]


@pytest.mark.parametrize(
    ("registry", "name", "kind"),
    [(ATTENTION, "multi_head", "token attention"), (TOKEN_ATTENTION, "se", "attention"), (MODELS, "se", "attention"),
     (MODELS, "captioner_transformer", "captioner"), (DATASETS, "caption_scenes", "caption data set")],
)  # fmt: skip
def test_a_name_of_another_kind_is_told_apart_from_a_misspelt_one(registry, name, kind):
    message = f"unknown {registry.kind} '{name}'. It names something else: {kind} '{name}'. Known: "
    with pytest.raises(ValueError, match=re.escape(message)):
        registry[name]


def test_a_name_far_from_all_gets_no_suggestion():
    assert suggest("transformer", ["se", "eca"]) == ""


def test_one_name_cannot_mean_two_things():
    shapes = Registry("shape")

    @shapes.register("square")
    def square(): ...

    with pytest.raises(ValueError, match=r"'square' is already registered by .*square"):

        @shapes.register("square")
        def other(): ...

    shapes.register("square")(square)
    assert shapes["square"] is square


@pytest.mark.parametrize(
    ("registry", "some"),
    [
        (ATTENTION, {"se", "cbam", "eca"}),
        (MODELS, {"resnet20", "mobilenet_v2"}),
        (DATASETS, {"cifar10", "image_folder"}),
    ],
)
def test_modules_of_the_package_are_found(registry, some):
    assert some <= set(registry)
    assert list(registry) == sorted(registry)
    assert len(registry) == len(list(registry))
    assert "no such thing" not in registry
