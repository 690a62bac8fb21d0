import pytest

from zoo.functional.validation import (
    check_count,
    check_odd_kernel_size,
    check_pooling,
    check_positive_int,
    check_probability,
)


@pytest.mark.parametrize("value", [0, -4, 2.5, 0.0625, 16.0, True, "16", None], ids=repr)
def test_only_integers_of_at_least_one_pass(value: object) -> None:
    with pytest.raises(ValueError) as refusal:
        check_positive_int("reduction_ratio", value)
    assert str(refusal.value) == f"reduction_ratio ({value!r}) must be an integer of at least 1"


@pytest.mark.parametrize("value", [0, -3, 2, 3.0, True], ids=repr)
def test_only_odd_integers_are_kernel_sizes(value: object) -> None:
    with pytest.raises(ValueError, match=r"must be an odd integer of at least 1"):
        check_odd_kernel_size("kernel_size", value)


def test_pooling_keeps_its_order_and_becomes_a_tuple() -> None:
    assert check_pooling(["max", "mean"]) == ("max", "mean")


@pytest.mark.parametrize("value", [-1, 1.0, True, "0", None], ids=repr)
def test_only_integers_of_at_least_zero_are_counts(value: object) -> None:
    assert check_count("window", 0) == 0
    with pytest.raises(ValueError, match=r"window \(.*\) must be an integer of at least 0"):
        check_count("window", value)


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, float("nan"), True, "0.1"], ids=repr)
def test_only_shares_below_one_can_be_dropped(value: object) -> None:
    assert check_probability("dropout_p", 0) == 0.0
    with pytest.raises(ValueError, match=r"dropout_p \(.*\) must be a number from 0 up to, but not including, 1"):
        check_probability("dropout_p", value)
