"""Lookup of the paper's numbers."""

import pytest

from regtta.errors import OptionError
from regtta_bench.paper import paper_number, paper_numbers


@pytest.mark.parametrize(
    ("name", "where", "text", "label"),
    [
        ("svhn", {"method": "ssa", "column": "R2"}, "0.511 ± 0.03", "tab:svhn"),
        ("california", {"method": "source", "score": "RMSE"}, "0.684", "tab:california"),
        ("utkface", {"method": "ssa", "column": "gaussian_noise"}, "0.580", "tab:utkface"),
        ("subspace", {"dataset": "svhn", "column": "valid_dimensions"}, "353", "tab:subspace_dim"),
        ("subspace", {"dataset": "svhn", "method": "feature_alignment"}, "-", "tab:subspace_dim"),
        (
            "ablation",
            {"dataset": "svhn", "method": "feature_alignment"},
            "0.333 ± 0.04",
            "tab:ablation_subspace_weight",
        ),
        ("k", {"method": "ssa", "dataset": "california", "k": 5}, "0.625", "atab:california_ablation_k"),
        ("k", {"method": "feature_alignment", "dataset": "biwi", "k": 1000}, "0.755", "atab:raw-feat_alignment_k"),
        ("metric", {"method": "ssa", "metric": "w2", "column": "R2"}, "0.425 ± 0.02", "atab:kl-vs-2wd_svhn"),
        ("sensitivity-lr", {"dataset": "svhn", "lr": 1e-2}, "0.212 ± 0.21", "atab:lr_variation_svhn"),
        (
            "sensitivity-batch",
            {"dataset": "biwi", "batch_size": 8, "column": "mean"},
            "0.718",
            "atab:bs_variation_biwi-kinect",
        ),
        ("vit", {"score": "subspace_dimensions", "task": "classification"}, "544", "atab:svhn_subspace_dims"),
        ("mae", {"dataset": "biwi", "method": "ssa", "column": "mean"}, "0.106 ± 0.00", "tab:biwi-kinect_mae"),
        ("online", {"dataset": "svhn", "method": "rsd", "score": "MAE"}, "1.607 ± 0.15", "tab:svhn_online"),
    ],
)
def test_a_number_has_its_table(name, where, text, label):
    found = paper_number(name, **where)
    assert (str(found.cell), found.label, found.name) == (text, label, name)


def test_a_repeated_number_comes_from_the_first_table():
    repeated = paper_numbers("k", method="ssa", dataset="svhn", k=100)
    assert [number.label for number in repeated] == ["tab:ablation_n_dims", "atab:raw-feat_alignment_k"]
    assert paper_number("k", method="ssa", dataset="svhn", k=100) == repeated[0]
    chosen = paper_number("k", method="ssa", dataset="svhn", k=100, label="atab:raw-feat_alignment_k")
    assert chosen == repeated[1]


def slips(name, **where):
    return [slip.name for slip in paper_number(name, **where).slips]


def test_numbers_carry_their_slips():
    assert slips("utkface", method="source", column="mean") == ["utkface-source-mean", "utkface-source-online"]
    assert slips("utkface", method="ssa", column="mean") == ["utkface-default-run"]
    assert slips("utkface", method="rsd", column="mean") == []
    assert slips("metric", dataset="biwi", method="feature_alignment", metric="l1", column="male_to_female_roll") == [
        "biwi-metric-headings"
    ]
    assert slips("sensitivity-batch", batch_size=64, column="impulse_noise") == [
        "utkface-default-run",
        "utkface-sensitivity-impulse-noise",
    ]
    assert slips("mae", dataset="biwi", method="rsd", column="mean") == ["biwi-means-of-diverged-rows"]


@pytest.mark.parametrize(
    ("name", "where", "message"),
    [
        ("shvn", {}, r"No table of the paper is named 'shvn'.*Did you mean.*'svhn'"),
        ("svhn", {"method": "rds"}, r"The paper's svhn has no method 'rds'; it has \['source', 'dann'.*'rsd'"),
        ("svhn", {"column": "r2"}, r"no column 'r2'; it has \['R2', 'RMSE', 'MAE'\]"),
        ("utkface", {"column": "gausian_noise"}, r"Did you mean 'gaussian_noise'"),
        ("svhn", {"k": 10}, r"cannot be looked up by 'k', only by \['method', 'column'"),
        ("sensitivity-batch", {"batchsize": 8}, r"Did you mean 'batch_size'"),
        ("k", {"k": 30}, r"The paper's k has no k 30; it has \[10, 25, 50"),
        ("k", {"k": 2048, "dataset": "california"}, r"no number for k with k=2048, dataset='california' together"),
        ("svhn", {"method": "ssa"}, r"found 3. They differ in column \['R2', 'RMSE', 'MAE'\] and score"),
        ("ablation", {"method": "ssa", "dataset": "svhn"}, r"found 2. They differ in weighting \[False, True\]"),
    ],
)
def test_errors_list_the_valid_values(name, where, message):
    with pytest.raises(OptionError, match=message):
        paper_number(name, **where)


def test_no_match_gives_an_empty_tuple_and_no_filter_all_cells():
    assert paper_numbers("k", k=2048, dataset="california") == ()
    assert len(paper_numbers("svhn")) == 30
