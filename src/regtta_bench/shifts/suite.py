"""The suite: named shifts of tables and images, each in the development or in the held-out half.

The split was fixed before the first run. Development are the shifts from one year, colour, site, season or fleet to
another in one direction, sensor faults of columns 0, 3, 6, … and every second corruption. Held out are the reversed
directions, sensor faults of other strengths in columns 1, 4, 7, … and the other corruptions. Defaults are chosen on the
development half only.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, get_args

from regtta.errors import OptionError
from regtta.options import did_you_mean
from regtta_bench.corruptions import CORRUPTIONS
from regtta_bench.paper import SETTINGS, Part, Setting
from regtta_bench.training import CALIFORNIA, SVHN

Half = Literal["development", "held-out"]
Kind = Literal["natural", "sensors", "corruption"]
Modality = Literal["tables", "images"]
DEVELOPMENT, HELD_OUT = get_args(Half)

TABLE_MODELS = 5
IMAGE_MODELS = 3


@dataclass(frozen=True)
class Shift:
    """A named shift from a source domain to a target domain.

    Attributes:
        name: identifier on the command line and in results.
        source: name of the source, one of ``SOURCES``.
        target: name of the target domain within the data set.
        half: ``"development"`` or ``"held-out"``.
        kind: ``"natural"`` (another population), ``"sensors"`` (simulated faults) or ``"corruption"`` (of images).
        description: one line that says what differs.
    """

    name: str
    source: str
    target: str
    half: Half
    kind: Kind
    description: str

    @property
    def setting(self) -> Setting:
        """Setting that the shift is run in: data set, model and training recipe of its source."""
        return SOURCES[self.source]

    @property
    def part(self) -> Part:
        """Source and target domain within the data set."""
        return Part(self.target, _VARIANTS.get(self.source, ""))

    @property
    def data(self) -> str:
        """Name of the data set on the command line: the first word of the source, such as ``bike``."""
        return self.source.partition("-")[0]

    @property
    def modality(self) -> Modality:
        """``"tables"`` or ``"images"``."""
        return "images" if self.setting.has_images else "tables"


def _table(name: str, title: str, data: str) -> Setting:
    return Setting(name, title, data, "mlp", CALIFORNIA, MappingProxyType({}), source_seeds=TABLE_MODELS)


# Sources by name. Those with a setting of the paper share its source models, and with them the runs.
SOURCES: Mapping[str, Setting] = MappingProxyType(
    {
        "bike-2011": _table("bike-2011", "bicycle rentals of 2011", "bike"),
        "bike-2012": _table("bike-2012", "bicycle rentals of 2012", "bike"),
        "wine-white": _table("wine-white", "white wines", "wine"),
        "wine-red": _table("wine-red", "red wines", "wine"),
        "pm-dongsi": _table("pm-dongsi", "PM2.5 in Dongsi, a site in the city", "pm25"),
        "pm-huairou": _table("pm-huairou", "PM2.5 in Huairou, a site in the country", "pm25"),
        "pm-winter": _table("pm-winter", "PM2.5 in Dongsi from November to March", "pm25"),
        "pm-summer": _table("pm-summer", "PM2.5 in Dongsi from May to September", "pm25"),
        "cmapss": _table("cmapss", "remaining life of turbofans, C-MAPSS FD001", "cmapss"),
        # BatchNorm and k are options of the rows here, not of the setting as in the paper's tables.
        "california": replace(SETTINGS["california"], k=100, options=MappingProxyType({}), source_seeds=TABLE_MODELS),
        "svhn": replace(SETTINGS["svhn-subset"], source_seeds=IMAGE_MODELS),
        "mnist": Setting(
            "mnist",
            "the first 5,000 digits of MNIST's test split",
            "mnist",
            "resnet26",
            SVHN,
            MappingProxyType({}),
            source_seeds=IMAGE_MODELS,
        ),
        "utkface": replace(SETTINGS["utkface"], source_seeds=IMAGE_MODELS),
    }
)
# Source domain within the data set, where there are several.
_VARIANTS: Mapping[str, str] = MappingProxyType(
    {source: source.partition("-")[2] for source in SOURCES if "-" in source} | {"cmapss": "fd001"}
)

_NATURAL = (
    Shift("bike-2011-to-2012", "bike-2011", "2012", "development", "natural", "bicycle rentals, a year later"),
    Shift("wine-white-to-red", "wine-white", "red", "development", "natural", "wine quality, the other colour"),
    Shift("pm-dongsi-to-huairou", "pm-dongsi", "huairou", "development", "natural", "PM2.5, from city to country"),
    Shift("pm-winter-to-summer", "pm-winter", "summer", "development", "natural", "PM2.5 in the city, the warm months"),
    Shift("cmapss-fd001-to-fd003", "cmapss", "fd003", "development", "natural", "turbofans with a second fault mode"),
    Shift("california-to-near-bay", "california", "near_bay", "development", "natural", "house prices near the bay"),
    Shift("svhn-to-mnist", "svhn", "mnist", "development", "natural", "from house numbers to handwritten digits"),
    Shift("bike-2012-to-2011", "bike-2012", "2011", "held-out", "natural", "bicycle rentals, a year earlier"),
    Shift("wine-red-to-white", "wine-red", "white", "held-out", "natural", "wine quality, the other colour"),
    Shift("pm-huairou-to-dongsi", "pm-huairou", "dongsi", "held-out", "natural", "PM2.5, from country to city"),
    Shift("pm-summer-to-winter", "pm-summer", "winter", "held-out", "natural", "PM2.5 in the city, the cold months"),
)
_FAULTS: Mapping[Half, Mapping[str, str]] = MappingProxyType(
    {
        "development": MappingProxyType(
            {
                "drift": "columns 0, 3, 6, …: 1.4 x + 0.8",
                "dropout": "columns 0, 3, 6, … read the minimum of the source",
                "noise": "columns 0, 3, 6, …: noise of 1 standard deviation",
            }
        ),
        "held-out": MappingProxyType(
            {
                "weak_drift": "columns 1, 4, 7, …: 1.2 x + 0.4",
                "strong_drift": "columns 1, 4, 7, …: 1.8 x + 1.6",
                "other_dropout": "columns 1, 4, 7, … read the minimum of the source",
                "weak_noise": "columns 1, 4, 7, …: noise of 0.5 standard deviations",
            }
        ),
    }
)
_DEVELOPMENT_FAULTY = ("bike-2011", "wine-white", "pm-dongsi", "cmapss")
_FAULTY: Mapping[Half, tuple[str, ...]] = MappingProxyType(
    {
        "development": _DEVELOPMENT_FAULTY,
        "held-out": (*_DEVELOPMENT_FAULTY, "bike-2012", "wine-red", "pm-huairou"),
    }
)
_CORRUPTED = ("svhn", "mnist", "utkface")


def _sensor_shifts(half: Half) -> Iterator[Shift]:
    for source in _FAULTY[half]:
        for fault, description in _FAULTS[half].items():
            yield Shift(f"{source}-{_dashed(fault)}", source, fault, half, "sensors", description)


def _corruption_shifts() -> Iterator[Shift]:
    for source in _CORRUPTED:
        for index, corruption in enumerate(CORRUPTIONS):
            half: Half = "held-out" if index % 2 else "development"
            words = corruption.replace("_", " ")
            yield Shift(
                f"{source}-{_dashed(corruption)}", source, corruption, half, "corruption", f"{words}, severity 5"
            )


def _dashed(name: str) -> str:
    return name.replace("_", "-")


SHIFTS: tuple[Shift, ...] = (
    *_NATURAL,
    *_sensor_shifts("development"),
    *_sensor_shifts("held-out"),
    *_corruption_shifts(),
)

# Ways to select shifts by name, in the order in which a name is looked up.
_SELECTORS = ("half", "modality", "kind", "data", "source", "name")


def select_shifts(names: Iterable[str], shifts: Iterable[Shift] = SHIFTS) -> tuple[Shift, ...]:
    """Return the shifts that ``names`` select, in the order of the suite; all of them if there are no names.

    A name is a half, ``tables`` or ``images``, a kind, a data set, a source or a shift. Data sets, sources and shifts
    are united; everything else restricts them further.

    Raises:
        OptionError: if a name is unknown, or if no shift has all that is asked for.

    Example:
        >>> [shift.name for shift in select_shifts(["wine", "bike-2011", "held-out", "natural"])]
        ['wine-red-to-white']
    """
    shifts, wanted = tuple(shifts), tuple(dict.fromkeys(names))
    chosen: dict[str, set[str]] = {}
    for name in wanted:
        chosen.setdefault(_find_selector(name, shifts), set()).update([name])
    places = {key: chosen.pop(key) for key in ("data", "source", "name") if key in chosen}
    found = tuple(
        shift
        for shift in shifts
        if all(getattr(shift, key) in values for key, values in chosen.items())
        and (not places or any(getattr(shift, key) in values for key, values in places.items()))
    )
    if not found:
        raise OptionError(f"No shift is {' and '.join(wanted)} at once. Pass fewer of --only.")
    return found


def _find_selector(name: str, shifts: tuple[Shift, ...]) -> str:
    known = {str(getattr(shift, key)): key for key in reversed(_SELECTORS) for shift in shifts}
    if name not in known:
        groups = dict.fromkeys(str(getattr(shift, key)) for key in _SELECTORS[:-1] for shift in shifts)
        raise OptionError(
            f"Expected --only to name a shift or one of {list(groups)}, found {name!r}." + did_you_mean(name, known)
        )
    return known[name]
