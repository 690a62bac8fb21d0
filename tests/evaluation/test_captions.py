"""What is measured of written captions, on answers planted by hand."""

import pytest
import torch

from zoo.data.caption_module import WordRegions
from zoo.data.caption_scenes import CaptionScenes
from zoo.evaluation.captions import (
    WrittenCaption,
    compute_caption_metrics,
    match_references,
    predict_captions,
    share_in_regions,
)
from zoo.models.caption_words import PAD


class Knowing(torch.nn.Module):
    """Stands for a captioner that knows what to write about each image, and looks where it is told."""

    def __init__(self, data, split, *, wrong=(), attention=None):
        super().__init__()
        self.data, self.wrong, self.attention = data, set(wrong), attention
        self.known = {tuple(picture.flatten()[:64].tolist()): row for row, picture in enumerate(self.pictures(split))}
        self.words = data._sets()[split].labels[:, 0]

    def pictures(self, split):
        stored = self.data._sets()[split].images.permute(0, 3, 1, 2)
        return self.data.preprocessing.normalize(stored)

    def rows(self, images):
        return [self.known[tuple(picture.flatten()[:64].tolist())] for picture in images]

    def answers(self, images):
        words = self.words[self.rows(images)].clone()
        for place, row in enumerate(self.rows(images)):
            if row in self.wrong:
                words[place, 2] = 4 if words[place, 2] != 4 else 5
        return words

    def forward(self, images, words):
        return 50.0 * torch.nn.functional.one_hot(self.answers(images)[:, 1:], self.data.num_classes).float()

    def write(self, images, beam_width=1):
        from zoo.models.caption_search import WrittenCaptions

        return WrittenCaptions(self.answers(images), torch.zeros(len(images)), torch.zeros(len(images)))

    def word_attention(self, images, words):
        return self.attention[self.rows(images)][:, : words.shape[1]]


@pytest.fixture(scope="module")
def scenes():
    return CaptionScenes(num_images=440, batch_size=8, eval_batch_size=16)


def boxes_as_attention(data, split, side):
    """Attention spread evenly over the cells of the boxes that a word speaks of."""
    regions = data.regions(split)
    edges = torch.arange(side + 1) / side

    def covered(first, last):
        overlap = torch.minimum(last[..., None], edges[1:]) - torch.maximum(first[..., None], edges[:-1])
        return overlap.clamp_min(0) * side

    down = covered(regions.boxes[..., 1], regions.boxes[..., 3])
    across = covered(regions.boxes[..., 0], regions.boxes[..., 2])
    inside = torch.einsum("iwo,ior,ioc->iwrc", regions.speaks_of.float(), down, across)
    even = torch.full_like(inside, 1 / side**2)
    total = inside.sum((2, 3), keepdim=True)
    return torch.where(total > 0, inside / total.clamp_min(1e-9), even)


@pytest.mark.parametrize("split", ["test", "held_out"])
def test_a_captioner_that_is_right_and_looks_at_what_it_names_scores_one(scenes, split):
    side = 48  # a cell per pixel, so that every box is made of whole cells
    model = Knowing(scenes, split, attention=boxes_as_attention(scenes, split, side))
    metrics = compute_caption_metrics(predict_captions(model, scenes, split), scenes.references(split))
    assert metrics["num_images"] == 40
    for name in ("exact_match", "exact_match_beam", "bleu", "token_accuracy"):
        assert metrics[name] == pytest.approx(1)
    assert metrics["grounding"] == pytest.approx(1, abs=1e-4)
    assert metrics["nll"] == pytest.approx(0, abs=1e-4)


def test_one_wrong_word_costs_one_image_and_one_token(scenes):
    side = 12
    even = torch.full((40, 8, side, side), 1 / side**2)
    rows = predict_captions(Knowing(scenes, "test", wrong=[3], attention=even), scenes, "test")
    metrics = compute_caption_metrics(rows, scenes.references("test"))
    assert metrics["exact_match"] == 1 - 1 / 40
    num_words = sum(len(each[0]) + 1 for each in scenes.references("test"))
    assert metrics["token_accuracy"] == pytest.approx(1 - 1 / num_words)
    assert 0.8 < metrics["bleu"] < 1
    assert metrics["grounding"] == pytest.approx(metrics["grounding_chance"])
    assert [row.image for row in rows] == list(range(40))


def test_an_even_gaze_scores_the_area_of_the_boxes_and_a_gaze_elsewhere_nothing():
    boxes = torch.tensor([[[0.0, 0.0, 0.5, 0.25], [0.75, 0.75, 1.0, 1.0]]])
    speaks_of = torch.tensor([[[True, False], [True, True], [False, False]]])
    even = torch.full((1, 3, 5, 7), 1 / 35)
    share, chance = share_in_regions(even, WordRegions(boxes, speaks_of))
    torch.testing.assert_close(share, torch.tensor([[0.125, 0.1875, 0.0]]))
    torch.testing.assert_close(chance, share)
    corner = torch.zeros(1, 3, 4, 4)
    corner[..., 3, 3] = 1
    assert share_in_regions(corner, WordRegions(boxes, speaks_of))[0].tolist() == [[0, 1, 0]]


def test_rows_and_columns_are_not_swapped():
    boxes = torch.tensor([[[0.0, 0.5, 1.0, 1.0]]])  # the lower half
    lower = torch.zeros(1, 1, 2, 3)
    lower[0, 0, 1, 0] = 1
    assert share_in_regions(lower, WordRegions(boxes, torch.ones(1, 1, 1, dtype=torch.bool)))[0].item() == 1


def test_one_of_several_references_is_enough_and_bleu_takes_them_all():
    assert match_references(["a"], [["b"], ["a"]])
    assert not match_references(["a", "b"], [["a"], ["b"]])
    row = WrittenCaption(0, ["one", "red", "ring", "and", "two"], ["x"], 2.0, 4, 3, [], [])
    metrics = compute_caption_metrics([row], [[["nothing"], ["one", "red", "ring", "and", "two"]]])
    assert (metrics["exact_match"], metrics["exact_match_beam"], metrics["bleu"]) == (1, 0, pytest.approx(1))
    assert (metrics["nll"], metrics["token_accuracy"]) == (0.5, 0.75)
    assert "grounding" not in metrics


def test_a_broken_model_is_reported_as_such(scenes):
    model = Knowing(scenes, "test")
    model.forward = lambda images, words: torch.full((*words.shape, scenes.num_classes), torch.nan)
    with pytest.raises(ValueError, match="NaN or infinite"):
        predict_captions(model, scenes, "test")


def test_an_image_without_a_caption_is_an_error():
    with pytest.raises(ValueError, match="0 captions are given for 1 images"):
        compute_caption_metrics([], [[["a"]]])


def test_filling_is_no_word(scenes):
    labels = scenes._sets()["test"].labels[:, 0]
    rows = predict_captions(Knowing(scenes, "test", attention=torch.zeros(40, 8, 1, 1)), scenes, "test")
    assert [row.num_words for row in rows] == (labels[:, 1:] != PAD).sum(1).tolist()
