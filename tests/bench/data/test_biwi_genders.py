import pytest

from regtta.errors import FileError, InvalidFileError, MissingFileError, OptionError
from regtta_bench.data.biwi import other_gender, read_genders


def test_genders_may_include_folders_that_do_not_exist(tmp_path):
    path = tmp_path / "genders.json"
    path.write_text('{"01": "female", "02": "male", "24": "male"}')
    assert read_genders(path, ["02", "01", "01"]) == {"01": "female", "02": "male", "24": "male"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"01": "female"', "not valid JSON"),
        ("\xff", "not valid JSON"),
        ("[" * 30_000, "not valid JSON"),
        ('{"01": "female", "01": "male"}', "the key '01' is named twice"),
        ('["female"]', "Expected an object such as .* found list"),
        ('{"01": "F"}', r"Expected one of \['female', 'male'\] for folder '01' in .* found 'F'"),
        ('{"01": ["male"]}', "for folder '01'"),
        ('{"01": "male"}', r"lacks the folders \['02', '03'\]"),
        (" " * 70_000, "more than 65536 bytes"),
    ],
)
def test_the_error_names_the_problem_of_the_file(tmp_path, text, message):
    path = tmp_path / "genders.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidFileError, match=message):
        read_genders(path, ["01", "03", "02"])


def test_an_absent_file_says_what_to_write(tmp_path):
    with pytest.raises(MissingFileError, match=r'not part of the data set: .* write {"01": "female", .* to .*g\.json'):
        read_genders(tmp_path / "g.json", ["01"])
    with pytest.raises(FileError, match="cannot be read"):
        read_genders(tmp_path, ["01"])


def test_the_other_gender():
    assert (other_gender("female"), other_gender("male")) == ("male", "female")
    with pytest.raises(OptionError, match="'female', 'male'.*found 'women'"):
        other_gender("women")
