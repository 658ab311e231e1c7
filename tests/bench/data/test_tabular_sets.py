import gzip

import numpy as np
import pandas as pd
import pytest

from helpers.published_datasets import write_tables
from helpers.real_data import FOLDER, needs_real_data
from regtta.errors import InvalidFileError, MissingFileError, OptionError
from regtta_bench.data import tabular_sets as data


def write_air(folder, hours):
    folder.joinpath("beijing_air").mkdir()
    columns = ["No", "year", "month", "day", "PM2.5", *data.AIR_INPUTS]
    rows = [",".join(columns)]
    for hour in hours:
        values = {"No": hour, "month": 1 if hour < 50 else 6, "PM2.5": "NA" if hour == 5 else 10}
        rows.append(",".join(str(values.get(name, hour)) for name in columns))
    with gzip.open(folder / "beijing_air" / "PRSA_Data_Dongsi_20130301-20170228.csv.gz", "wt") as file:
        file.write("\n".join(rows))


def test_air_drops_gaps_and_takes_windows_of_consecutive_hours(tmp_path):
    write_air(tmp_path, range(1, 61))
    assert data.air(tmp_path, "Dongsi").inputs.shape == (59, 11)
    assert len(data.air(tmp_path, "Dongsi", months=(6,))) == 11
    series = data.air(tmp_path, "Dongsi", window=3)
    assert series.inputs.shape == (2 + 53, 3, 11)  # hours 1 to 4, and 6 to 60
    assert (series.inputs[:, -1, 0] - series.inputs[:, 0, 0] == 2).all()


def test_turbofans_have_their_remaining_life(tmp_path):
    folder = tmp_path / "cmapss"
    folder.mkdir()
    cycles = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]
    text = "\n".join(f"{engine} {cycle} 0.5 0.25" for engine, cycle in cycles)
    (folder / "train_FD001.txt").write_text(text)
    (folder / "test_FD003.txt").write_text(text)
    (folder / "RUL_FD003.txt").write_text("10\n500\n")
    assert data.turbofans(tmp_path, train=True).targets.flatten().tolist() == [1, 0, 2, 1, 0]
    assert data.turbofans(tmp_path, train=False).targets.flatten().tolist() == [11, 10, 125, 125, 125]


def test_bicycles_are_read_by_year_with_the_logarithm_of_their_rentals(tmp_path):
    write_tables(tmp_path)
    table = pd.read_csv(tmp_path / "bike_sharing" / "hour.csv")
    table = table[table["yr"] == 1]
    read = data.bike(tmp_path, 1)
    np.testing.assert_array_equal(read.inputs, table[list(data.BIKE_INPUTS)])
    np.testing.assert_allclose(read.targets[:, 0], np.log(1 + table["cnt"]))


@pytest.mark.parametrize("separator", [",", ";"])
def test_wine_is_separated_by_semicolons_or_commas(tmp_path, separator):
    folder = tmp_path / "wine_quality"
    folder.mkdir()
    text = "\ufeffacid;sugar;quality\n1.5;2;6\n3;4;7\n".replace(";", separator)
    with gzip.open(folder / "winequality-red.csv.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    read = data.wine(tmp_path, "red")
    assert read.inputs.tolist() == [[1.5, 2], [3, 4]]
    assert read.targets.flatten().tolist() == [6, 7]


def test_a_missing_file_says_where_to_get_it(tmp_path):
    with pytest.raises(MissingFileError, match=r"UCI wine quality is not in .*put it at .*winequality-red.csv"):
        data.wine(tmp_path, "red")
    with pytest.raises(OptionError, match="the colour"):
        data.wine(tmp_path, "rose")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bike_sharing/hour.csv", "yr,cnt\n0,1\n", r"found no column \['season'"),
        ("bike_sharing/hour.csv", "", "cannot be read as a CSV table"),
        ("wine_quality/winequality-red.csv", "acid,quality\n1,good\n", r"found text in \['quality'\]"),
        ("wine_quality/winequality-red.csv", "acid,quality\n1,\n", "Expected rows with a quality"),
        ("cmapss/train_FD001.txt", "1 2 three\n", "cannot be read as a table of numbers"),
        ("cmapss/train_FD001.txt", "1 2\n", "Expected rows of at least 3 numbers"),
        ("cmapss/RUL_FD003.txt", "1\n2\n3\n", "each of the 2 engines"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, name, text, said):
    write_tables(tmp_path)
    (tmp_path / name).write_text(text)
    readers = {
        "bike_sharing": lambda: data.bike(tmp_path, 0),
        "wine_quality": lambda: data.wine(tmp_path, "red"),
        "cmapss": lambda: data.turbofans(tmp_path, train="train" in name),
    }
    with pytest.raises(InvalidFileError, match=said):
        readers[name.partition("/")[0]]()


@needs_real_data
@pytest.mark.real_data
def test_the_real_tables():
    assert (len(data.bike(FOLDER, 0)), len(data.bike(FOLDER, 1))) == (8645, 8734)
    assert (len(data.wine(FOLDER, "white")), len(data.wine(FOLDER, "red"))) == (4898, 1599)
    assert (len(data.air(FOLDER, "Dongsi")), len(data.air(FOLDER, "Huairou"))) == (30402, 31955)
    train, test = (data.turbofans(FOLDER, train=train) for train in (True, False))
    assert (train.inputs.shape, test.inputs.shape) == ((20631, 24), (16596, 24))
    assert (train.targets.min(), train.targets.max()) == (0, 125)
