"""The constants against a second copy of the published table, typed in on its own."""

import re
from pathlib import Path

import pytest

from regtta.errors import OptionError
from regtta_bench.corruptions import CONSTANTS, CORRUPTIONS, DEVIATIONS, SEVERITIES
from regtta_bench.corruptions.constants import ELASTIC_SIDES, PARAMETER_NAMES, get_parameters

PAGE = Path(__file__).parents[3] / "docs" / "corruptions.md"

TABLE = """
gaussian_noise    | .08 .12 .18 .26 .38                   | .04 .06 .08 .09 .10
shot_noise        | 60 25 12 5 3                          | 500 250 100 75 50
impulse_noise     | .03 .06 .09 .17 .27                   | .01 .02 .03 .05 .07
defocus_blur      | 3,.1 4,.5 6,.5 8,.5 10,.5             | .3,.4 .4,.5 .5,.6 1,.2 1.5,.1
motion_blur       | 10,3 15,5 15,8 15,12 20,15            | 6,1 6,1.5 6,2 8,2 9,2.5
zoom_blur         | 1.11,.01 1.16,.01 1.21,.02 1.26,.02 1.31,.03 | 1.06,.01 1.11,.01 1.16,.01 1.21,.01 1.26,.01
snow              | .1,.3,3,.5,10,4,.8 .2,.3,2,.5,12,4,.7 .55,.3,4,.9,12,8,.7 .55,.3,4.5,.85,12,8,.65 \
.55,.3,2.5,.85,12,12,.55 | .1,.2,1,.6,8,3,.95 .1,.2,1,.5,10,4,.9 .15,.3,1.75,.55,10,4,.9 .25,.3,2.25,.6,12,6,.85 \
.3,.3,1.25,.65,14,12,.8
fog               | 1.5,2 2,2 2.5,1.7 2.5,1.5 3,1.4       | .2,3 .5,3 .75,2.5 1,2 1.5,1.75
brightness        | .1 .2 .3 .4 .5                        | .05 .1 .15 .2 .3
contrast          | .4 .3 .2 .1 .05                       | .75 .5 .4 .3 .15
elastic_transform | 2,.7,.1 2,.08,.2 .05,.01,.02 .07,.01,.02 .12,.01,.02 \
| 0,0,.08 .05,.2,.07 .08,.06,.06 .1,.04,.05 .1,.03,.03
pixelate          | .6 .5 .4 .3 .25                       | .95 .9 .85 .75 .65
jpeg_compression  | 25 18 15 10 7                         | 80 65 58 50 40
"""


def severities(cell):
    return tuple(tuple(float(figure) for figure in entry.split(",")) for entry in cell.split())


def published():
    rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
    return {name: {"imagenet": severities(first), "cifar": severities(second)} for name, first, second in rows}


def test_every_set_holds_the_thirteen_and_nothing_else():
    names = list(published())
    assert len(names) == 13
    assert (
        list(CORRUPTIONS) == list(PARAMETER_NAMES) == list(CONSTANTS["imagenet"]) == list(CONSTANTS["cifar"]) == names
    )
    assert set(CONSTANTS) == {"imagenet", "cifar"}


@pytest.mark.parametrize("constants", ["imagenet", "cifar"])
@pytest.mark.parametrize("name", published())
def test_the_constants_are_the_published_ones(name, constants):
    rows = published()[name][constants]
    assert len(rows) == len(SEVERITIES) == 5
    assert CONSTANTS[constants][name] == rows
    assert all(len(row) == len(PARAMETER_NAMES[name]) for row in rows)


def test_parameters_are_the_constants_with_the_elastic_ones_in_pixels():
    assert ELASTIC_SIDES == {"imagenet": 244, "cifar": 32}
    assert get_parameters("imagenet", "elastic_transform", 2) == pytest.approx((488, 19.52, 48.8))
    assert get_parameters("cifar", "elastic_transform", 3) == pytest.approx((2.56, 1.92, 1.92))
    assert get_parameters("cifar", "shot_noise", 1) == (500,)
    with pytest.raises(OptionError, match="Did you mean 'imagenet'"):
        get_parameters("imagenets", "fog", 1)


@pytest.mark.parametrize("table", [CONSTANTS, CONSTANTS["cifar"], CONSTANTS["imagenet"], CORRUPTIONS, DEVIATIONS])
def test_the_tables_are_read_only(table):
    with pytest.raises(TypeError):
        table["fog"] = ()


def test_the_page_shows_the_same_figures():
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", PAGE.read_text(encoding="utf-8"), flags=re.M))
    assert list(rows) == list(CORRUPTIONS)
    for name, cells in rows.items():
        for cell, constants in zip(cells.split("|"), ("imagenet", "cifar"), strict=True):
            assert severities(re.sub(r"[()]", "", cell.replace(", ", ","))) == CONSTANTS[constants][name]


def test_the_page_shows_every_deviation():
    assert set(DEVIATIONS) <= {"all", *CORRUPTIONS}
    text = PAGE.read_text(encoding="utf-8")
    for name, sentence in DEVIATIONS.items():
        assert f"| {name if name == 'all' else f'`{name}`'} | {sentence} |" in text
