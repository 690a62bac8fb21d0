import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.comparison.choices import Choice, check_distinct, parse_choice, parse_choices, read_choices

VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.just([1, 2]))


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda key: key != "root"), VALUES))
def test_a_title_is_read_back_as_the_choice_it_names(options):
    choice = Choice("cbam", options)
    assert parse_choice(choice.title) == choice


def test_a_title_names_a_folder_of_images_without_the_place_where_it_lies():
    assert Choice("image_folder", {"root": "/home/ada/pets", "image_size": 64}).title == (
        "image_folder(root=pets, image_size=64)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cbam(", "must be written as NAME or NAME"),
        ("cbam(reduction_ratio)", "'reduction_ratio' in 'cbam\\(reduction_ratio\\)' must be written as option=value"),
        ("cbam(a=1, a=2)", "gives a twice"),
        ("", "must be written as NAME"),
        ("se,,cbam", "'' must be written as NAME"),
    ],
)
def test_what_is_written_otherwise_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_choices(text) if "," in text else parse_choice(text)


@pytest.mark.parametrize(
    "values", ["se", [], None, [3], [{"reduction_ratio": 8}], [{"name": "se", "models": "resnet20"}]]
)
def test_an_axis_of_a_file_is_a_list_of_names_and_mappings(values):
    with pytest.raises(ValueError, match="must be"):
        read_choices("attention", values)


def test_only_an_attention_is_bound_to_models():
    (bound,) = read_choices("attention", [{"name": "se", "reduction_ratio": 8, "models": ["resnet20"]}])
    assert bound == Choice("se", {"reduction_ratio": 8}, ("resnet20",))
    (model,) = read_choices("models", [{"name": "resnet20", "models": 3}])
    assert model.options == {"models": 3}


def test_what_stands_twice_is_named():
    check_distinct("seeds", ["0", "1"])
    with pytest.raises(ValueError, match="seeds: 1 stands twice"):
        check_distinct("seeds", ["0", "1", "1"])
