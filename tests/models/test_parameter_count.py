from torch import nn

from zoo.evaluation import complexity
from zoo.models.parameter_count import count_parameters


def test_a_shared_parameter_counts_once_and_buffers_do_not() -> None:
    shared = nn.Linear(3, 2)
    assert count_parameters(nn.Sequential(shared, nn.BatchNorm1d(2), shared)) == 8 + 4


def test_evaluation_counts_by_the_same_definition() -> None:
    assert complexity.count_parameters is count_parameters
