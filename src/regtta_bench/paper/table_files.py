"""Reading of the tables and slips from the TOML files of the package."""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from regtta.errors import OptionError
from regtta.options import did_you_mean
from regtta_bench.paper.records import (
    Header,
    Option,
    PaperCell,
    PaperRow,
    PaperTable,
    Slip,
    SlipLocation,
)

# File name of each table by its LaTeX label, in the paper's order.
TABLE_FILES: Mapping[str, str] = MappingProxyType(
    {
        "tab:subspace_dim": "subspace_dim",
        "tab:svhn": "svhn",
        "tab:california": "california",
        "tab:utkface": "utkface",
        "tab:biwi-kinect": "biwi_kinect",
        "tab:ablation_subspace_weight": "ablation_subspace_weight",
        "atab:correlation_table": "correlation_table",
        "tab:ablation_n_dims": "ablation_n_dims",
        "atab:kl-vs-2wd_svhn": "kl_vs_2wd_svhn",
        "atab:kl-vs-2wd_utkface": "kl_vs_2wd_utkface",
        "atab:kl-vs-2wd_biwi-kinect": "kl_vs_2wd_biwi_kinect",
        "atab:california_ablation_k": "california_ablation_k",
        "atab:california_raw_ablation_k": "california_raw_ablation_k",
        "atab:raw-feat_alignment_k": "raw_feat_alignment_k",
        "atab:svhn_subspace_dims": "svhn_subspace_dims",
        "atab:vit_svhn_table": "vit_svhn_table",
        "atab:biwi-kinect_multi-task": "biwi_kinect_multi_task",
        "atab:classification_subspace_dim": "classification_subspace_dim",
        "atab:classification_accuracy_mnist": "classification_accuracy_mnist",
        "atab:classification_accuracy_cifar10c": "classification_accuracy_cifar10c",
        "atab:lr_variation_svhn": "lr_variation_svhn",
        "atab:lr_variation_utkface": "lr_variation_utkface",
        "atab:lr_variation_biwi-kinect": "lr_variation_biwi_kinect",
        "atab:bs_variation_svhn": "bs_variation_svhn",
        "atab:bs_variation_utkface": "bs_variation_utkface",
        "atab:bs_variation_biwi-kinect": "bs_variation_biwi_kinect",
        "tab:utkface_mae": "utkface_mae",
        "tab:biwi-kinect_mae": "biwi_kinect_mae",
        "tab:svhn_online": "svhn_online",
        "tab:utkface_online": "utkface_online",
        "tab:biwi-kinect_online": "biwi_kinect_online",
    }
)
TABLE_LABELS: tuple[str, ...] = tuple(TABLE_FILES)

DIVERGED = "-"


@cache
def paper_table(label: str) -> PaperTable:
    """Return a table by its LaTeX label.

    Example:
        >>> paper_table("tab:california").row("rsd").cells[0].diverged
        True
    """
    if label not in TABLE_FILES:
        raise OptionError(
            f"The paper has no table {label!r}; it has {list(TABLE_FILES)}." + did_you_mean(label, TABLE_FILES)
        )
    return _table(_content(f"tables/{TABLE_FILES[label]}.toml"))


@cache
def paper_slips() -> tuple[Slip, ...]:
    """Return all known contradictions in the paper.

    Example:
        >>> paper_slips()[0].name
        'utkface-source-mean'
    """
    return tuple(
        Slip(
            entry["name"],
            entry["text"],
            tuple(
                SlipLocation(header["label"], header["column"], header.get("row"), header["says"])
                for header in entry["places"]
            ),
        )
        for entry in _content("slips.toml")["slips"]
    )


def _content(path: str) -> dict[str, Any]:
    """Parse a TOML file of the package; Decimal keeps the digits as printed, including trailing zeros."""
    text = files("regtta_bench.paper").joinpath(path).read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Decimal)


def _table(content: Mapping[str, Any]) -> PaperTable:
    return PaperTable(
        name=content["name"],
        label=content["label"],
        caption=content["caption"],
        score=content.get("score"),
        protocol=content["protocol"],
        dataset=content.get("dataset"),
        method=content.get("method"),
        columns=tuple(_header(column) for column in content["columns"]),
        rows=tuple(PaperRow(_header(row), tuple(_cell(cell) for cell in row["cells"])) for row in content["rows"]),
        notes=tuple(content.get("notes", ())),
    )


def _header(entry: Mapping[str, Any]) -> Header:
    return Header(
        name=entry["name"],
        label=entry["label"],
        method=entry.get("method"),
        dataset=entry.get("dataset"),
        score=entry.get("score"),
        options=MappingProxyType({name: _option(value) for name, value in entry.get("options", {}).items()}),
    )


def _option(value: Option | Decimal) -> Option:
    return float(value) if isinstance(value, Decimal) else value


def _cell(entry: Any) -> PaperCell:
    """Convert ``"-"``, a mean, or a list of mean and standard deviation to a cell."""
    if entry == DIVERGED:
        return PaperCell(mean=None, diverged=True)
    mean, sd = entry if isinstance(entry, list) else (entry, None)
    if sd is None:
        return PaperCell(float(mean), text=str(mean))
    return PaperCell(float(mean), float(sd), text=f"{mean} ± {sd}")
