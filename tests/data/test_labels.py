import pytest
import torch

from zoo.data.labels import check_labels, map_labels

CLASSES = ["cat", "dog", "owl"]


def check(labels):
    check_labels(labels, CLASSES, "val/{:05d}".format, "validation")


def test_labels_in_range_pass():
    check(torch.tensor([0, 1, 2, 2]))
    check(torch.tensor([], dtype=torch.int64))


@pytest.mark.parametrize(
    ("labels", "offender"),
    [
        ([0, 1, 3], "val/00002 has label 3"),
        ([1, 2, 3], "val/00002 has label 3"),
        ([0, -1, 2], "val/00001 has label -1"),
    ],
)
def test_label_out_of_range_names_the_first_offender_classes_and_counts(labels, offender):
    with pytest.raises(ValueError, match=r"labels must be 0\.\.2 \(0 cat, 1 dog, 2 owl\)") as caught:
        check(torch.tensor(labels))
    assert f"validation image {offender}" in str(caught.value)
    assert ", ".join(f"{value}: 1" for value in sorted(labels)) in str(caught.value)


@pytest.mark.parametrize(
    "labels",
    [torch.tensor([0.0, 1.0]), torch.tensor([0, 1], dtype=torch.int32), torch.tensor([[0], [1]])],
    ids=["float", "int32", "column"],
)
def test_labels_of_another_form_are_refused(labels):
    with pytest.raises(ValueError, match=r"validation labels must be int64 of shape \(images,\), got torch"):
        check(labels)


def test_labels_follow_demanded_classes_by_name():
    assert map_labels(["owl", "cat"], CLASSES).tolist() == [2, 0]


def test_class_that_is_not_demanded_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"the data has class 'dogs' \(1 such\), .* Did you mean 'dog'\?"):
        map_labels(["cat", "dogs"], CLASSES)


@pytest.mark.parametrize(
    ("own", "demanded", "where"), [(["a", "a"], ["a"], "the data"), (["a"], ["a", "b", "b"], "demanded")]
)
def test_class_that_occurs_twice_is_refused(own, demanded, where):
    with pytest.raises(ValueError, match=f"occurs more than once in .*{where}"):
        map_labels(own, demanded)
