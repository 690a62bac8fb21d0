"""What is no ground for a gate is refused, with what is there; the network stays as it was."""

import pytest
import torch
from torch import nn

import zoo


class Net(nn.Module):
    """Everything a gate cannot go to, and one module where it can."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.twin = self.conv_twin = nn.Conv2d(4, 4, 1)
        self.act = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.unused = nn.Conv2d(4, 4, 1)
        self.fc = nn.Linear(4, 2)
        self.pair = nn.Identity()

    def forward(self, images):
        features = self.act(self.twin(self.act(self.conv(images))))
        self.pool(images)
        return self.pair(self.fc(self.pool(features).flatten(1)))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("twin", r"twin \(Conv2d\) is shared, under the names twin, conv_twin; one gate would serve all of them"),
        ("act", r"act \(ReLU\) runs 2 times within one pass of the module around it; one gate would sit at all"),
        ("pool", r"pool \(AdaptiveAvgPool2d\) sees maps of different widths \(3, 4\); one gate cannot fit all"),
        ("unused", r"unused \(Conv2d\) did not run in the traced pass; a gate there would have no effect"),
        ("fc", r"fc \(Linear\) returns \(1, 2\) of torch.float32; a gate needs a floating-point map \(batch, channels"),
        ("conv?", r"where='conv\?' matches no module. Near: conv. \(its children are conv: Conv2d, twin: Conv2d"),
        ([], "where is an empty list"),
        (["conv", "layer9"], "where='layer9' matches no module"),
        (lambda name, module: False, r"where selects none of the 7 modules \(its children are conv"),
        ([3], r"where \(\[3\]\) must be 'branches', names or patterns of modules, or a function of name and module"),
        ("branches", r"no block of a known family in this Net \(its children are .*where=. Known: ResNet, ResNeXt"),
    ],
)
def test_places_that_are_none(where, message):
    model = Net()
    names = list(model.state_dict())
    with pytest.raises(ValueError, match=message):
        zoo.insert_attention(model, "se", where=where)
    assert list(model.state_dict()) == names
    assert zoo.insert_attention(model, "se", where="conv").gates[0].channels == 4


def test_modules_within_a_siamese_network_may_run_twice():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())

        def forward(self, images):
            return self.trunk(images) - self.trunk(images.flip(3))

    report = zoo.insert_attention(Siamese(), "se", where="trunk.1")
    assert [gate.name for gate in report.gates] == ["trunk.1.attention"]


class OwnSE(nn.Module):
    """A network somebody wrote, with a gate somebody wrote."""

    class SELayer(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.fc = nn.Linear(channels, channels)

        def forward(self, features):
            return features * self.fc(features.mean((2, 3))).sigmoid()[:, :, None, None]

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.gate = OwnSE.SELayer(4)

    def forward(self, images):
        return self.gate(self.conv(images))


@pytest.mark.parametrize("where", ["conv", "gate"])
def test_a_gate_somebody_wrote_is_not_doubled_and_comes_back_after_a_replacement(where):
    model = OwnSE()
    images = torch.randn(1, 3, 8, 8)
    expected = model(images)
    with pytest.raises(ValueError, match=r"there is a gate already: gate \(SELayer\)"):
        zoo.insert_attention(model, "eca", where=where)
    report = zoo.insert_attention(model, "eca", where=where, replace=True)
    assert [gate.replaced for gate in report.gates] == ["SELayer"]
    zoo.remove_attention(model)
    assert isinstance(model.gate, OwnSE.SELayer)
    assert torch.equal(model(images), expected)


def test_two_places_that_meet_at_one_gate_or_one_map_are_refused(resnet):
    with pytest.raises(ValueError, match="several of the places meet the same gate gate"):
        zoo.insert_attention(OwnSE(), "eca", where=["conv", "gate"], replace=True)
    with pytest.raises(ValueError, match=r"layer1 returns the map of layer1\.0; two gates would act on the same map"):
        zoo.insert_attention(resnet, "se", where=["layer1", "layer1.0"])


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([5], "stage 5 has no place for a gate; stages with one: 1, 2, 3, 4"),
        ([], r"stages \(\[\]\) must be a list of one or more stages"),
        ("12", r"stages \('12'\) must be a list"),
        (3, r"stages \(3\) must be a list"),
        ([2, 2], r"stages \(\[2, 2\]\) must name each stage once"),
        (["2"], "stage '2' has no place"),
    ],
)
def test_stages_that_do_not_exist(resnet, stages, message):
    with pytest.raises(ValueError, match=message):
        zoo.insert_attention(resnet, "se", stages=stages)


def test_stages_beside_names_have_no_effect(resnet):
    with pytest.raises(ValueError, match=r"stages \(\[1\]\) has no effect unless where is 'branches'"):
        zoo.insert_attention(resnet, "se", where="layer1.0.bn2", stages=[1])


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        weight = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
        self.register_buffer("packed", weight)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda net: torch.jit.trace(net, torch.zeros(1, 3, 64, 64)), "is scripted: its forward pass is fixed"),
        (torch.compile, "is compiled, and would go on without the gates. Insert before torch.compile"),
        (lambda net: nn.Sequential(nn.DataParallel(net)), "0 is a DataParallel. Insert into the network before it is"),
        (lambda net: Quantised(), "packed is quantised; gates compute in floating point"),
        (lambda net: nn.Sequential(net, nn.LazyLinear(4)), "1.weight has no shape yet. Run the model once before"),
        (lambda net: "resnet18", "the model must be a torch.nn.Module, not str"),
    ],
    ids=["scripted", "compiled", "wrapped", "quantised", "lazy", "no module"],
)
def test_models_that_gates_cannot_reach(resnet, make, message):
    with pytest.raises(ValueError, match=message):
        zoo.insert_attention(make(resnet), "se")


def test_a_part_compiled_in_place_is_refused(resnet):
    resnet.layer1.compile(backend="eager")
    with pytest.raises(ValueError, match="layer1 is compiled"):
        zoo.insert_attention(resnet, "se")


def test_a_network_that_takes_something_else_asks_for_an_example():
    class TakesTwo(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, images, scale):
            return self.conv(images) * scale

    with pytest.raises(ValueError, match=r"cannot be run on an input of \(1, 3, 224, 224\) \(TypeError.*example_input"):
        zoo.insert_attention(TakesTwo(), "se", where="conv")
    report = zoo.insert_attention(TakesTwo(), "se", where="conv", example_input=(torch.randn(1, 3, 8, 9), 2.0))
    assert (report.gates[0].height, report.gates[0].width) == (8, 9)
