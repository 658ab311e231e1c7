import re

import pytest

from regtta_bench.data.loading import LOADERS
from regtta_bench.paper import TABLE_LABELS, paper_table, table_numbers
from regtta_bench.paper.settings import SETTINGS, Part
from regtta_bench.shifts import SOURCES
from regtta_bench.training.models import HEADS

BIWI_COLUMN = re.compile(r"(female|male)_to_(female|male)_(pitch|roll|yaw)")
# In the order that the pose files are read in.
ANGLES = ("yaw", "roll", "pitch")

BY_PART = [
    *((label, "utkface") for label in TABLE_LABELS if "utkface" in label),
    *((label, "biwi") for label in TABLE_LABELS if "biwi" in label and "multi" not in label),
    ("atab:biwi-kinect_multi-task", "biwi-multitask"),
    ("atab:classification_accuracy_cifar10c", "cifar10c"),
]


@pytest.mark.parametrize(("label", "name"), BY_PART)
def test_the_columns_of_a_table_are_the_parts_of_its_setting_and_their_mean(label, name):
    columns = {column.name for column in paper_table(label).columns}
    assert columns == {*SETTINGS[name].parts, "mean"}


def test_there_are_fourteen_tables_by_part():
    assert len(BY_PART) == 14


def test_a_column_of_biwi_is_a_model_of_one_gender_and_angle_on_the_other_gender():
    assert len(SETTINGS["biwi"].parts) == 6
    for column, part in SETTINGS["biwi"].parts.items():
        source, target, angle = BIWI_COLUMN.fullmatch(column).groups()
        assert part == Part(target, f"{source}-{angle}")
        assert source != target


def test_a_column_of_biwi_multitask_is_one_output_of_a_model_of_one_gender():
    assert len(SETTINGS["biwi-multitask"].parts) == 6
    for column, part in SETTINGS["biwi-multitask"].parts.items():
        source, target, angle = BIWI_COLUMN.fullmatch(column).groups()
        assert part == Part(target, source, output=ANGLES.index(angle))
    assert SETTINGS["biwi-multitask"].outputs == 3


def test_number_of_source_domains_by_setting():
    counts = {name: len(setting.variants) for name, setting in SETTINGS.items()}
    assert counts.pop("biwi") == 6
    assert counts.pop("biwi-multitask") == 2
    assert set(counts.values()) == {1}
    assert SETTINGS["biwi-multitask"].variants == ("female", "male")
    assert SETTINGS["svhn"].variants == ("",)


def test_a_corruption_is_a_target_of_its_own_and_all_share_a_source():
    for name in ("utkface", "cifar10c"):
        assert len(SETTINGS[name].parts) == 13
        assert all(part == Part(column) for column, part in SETTINGS[name].parts.items())


def test_a_column_is_its_part_and_a_mean_is_over_all():
    faces = SETTINGS["utkface"]
    assert faces.column_parts("fog") == (Part("fog"),)
    assert faces.column_parts("mean") == tuple(faces.parts.values())
    assert SETTINGS["svhn"].column_parts("RMSE") == (Part("mnist"),)
    assert SETTINGS["california"].column_parts("california") == (Part("near_bay"),)


def test_source_models_are_trained_as_in_the_papers_appendix():
    for setting in SETTINGS.values():
        recipe = setting.recipe
        epochs = 733 if setting.name == "svhn-subset" else 100  # as many steps as 100 epochs of the whole of SVHN
        assert (recipe.epochs, recipe.batch_size, recipe.weight_decay) == (epochs, 64, 0.0005)
        assert recipe.lr == (0.001 if setting.name == "california" else 0.0001)
    models = {name: setting.model for name, setting in SETTINGS.items()}
    assert models == {
        "svhn": "resnet26",
        "svhn-subset": "resnet26",
        "svhn-vit": "vit_b16",
        "california": "mlp",
        "utkface": "resnet50",
        "biwi": "resnet50",
        "biwi-multitask": "resnet50",
        "cifar10c": "resnet26",
    }


def test_image_preprocessing_is_that_of_the_papers_configurations():
    shown = {
        name: (recipe.crop_padding, recipe.photo_side, recipe.colour_jitter, recipe.resized)
        for name, recipe in ((name, setting.recipe) for name, setting in SETTINGS.items())
    }
    assert shown == {
        "svhn": (4, 0, 0, 0),
        "svhn-subset": (4, 0, 0, 0),
        "svhn-vit": (4, 0, 0, 224),
        "california": (0, 0, 0, 0),
        "utkface": (0, 224, 0, 0),
        "biwi": (0, 224, 0.3, 0),
        "biwi-multitask": (0, 224, 0.3, 0),
        "cifar10c": (4, 0, 0, 0),
    }
    assert [name for name, setting in SETTINGS.items() if not setting.has_images] == ["california"]


def test_a_hundred_dimensions_everywhere_but_ten_on_california():
    assert {name: setting.k for name, setting in SETTINGS.items() if setting.k != 100} == {"california": 10}


def test_source_models_are_several_where_training_is_cheap():
    several = {name: setting.source_seeds for name, setting in SETTINGS.items() if setting.source_seeds > 1}
    assert several == {"svhn": 3, "svhn-subset": 3, "california": 5}


def test_every_setting_has_its_data_and_model():
    for name, setting in SETTINGS.items():
        assert setting.name == name
        assert setting.data in LOADERS
        assert setting.model in HEADS
    assert {setting.data for setting in (*SETTINGS.values(), *SOURCES.values())} == set(LOADERS)


def test_every_data_set_of_the_paper_has_a_setting():
    named = {number.dataset for label in TABLE_LABELS for number in table_numbers(paper_table(label))}
    assert named - set(SETTINGS) == {"cifar10"}  # which goes by cifar10c


def test_settings_are_distinct_and_read_only():
    assert len(set(SETTINGS.values())) == len(SETTINGS)
    with pytest.raises(TypeError):
        SETTINGS["utkface"].parts["rain"] = Part("rain")
