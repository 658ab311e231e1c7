"""Biwi Kinect head pose: reading the archive, and its split by gender."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regtta.errors import InvalidFileError, MissingFileError, OptionError
from regtta.persistence import parse_json, read_bounded
from regtta_bench.data.archives import iter_entries
from regtta_bench.data.catalogue import find_path, missing_dataset_error
from regtta_bench.data.domains import split_indices
from regtta_bench.data.pictures import MAX_PICTURE_BYTES, RESIZED_SIDE, Pictures, ShiftedPictures, decode_all

GENDERS = ("female", "male")
_MAX_GENDERS_BYTES = 64 * 2**10
_EXAMPLE = '{"01": "female", "02": "male", ...}'


def read_genders(path: Path, subjects: Iterable[str]) -> dict[str, str]:
    """Read ``{"01": "female", ...}`` from a JSON file; raise if one of the folders ``subjects`` is missing from it."""
    if not path.exists():
        raise MissingFileError(
            f"There is no file {path}. The genders of Biwi Kinect's subjects are not part of the data set: look at a "
            f"frame of each folder, and write {_EXAMPLE} to {path}, with every folder in it."
        )
    raw = read_bounded(path, _MAX_GENDERS_BYTES)
    try:
        content = parse_json(raw)
    except ValueError as error:
        raise InvalidFileError(f"{path} is not valid JSON: {error}. Expected {_EXAMPLE}.") from error
    return _validate_genders(path, content, subjects)


def other_gender(gender: str) -> str:
    """Return the other of the two genders."""
    if gender not in GENDERS:
        raise OptionError(f"Expected the source to be one of {list(GENDERS)}, found {gender!r}.")
    return GENDERS[1 - GENDERS.index(gender)]


def _validate_genders(path: Path, content: object, subjects: Iterable[str]) -> dict[str, str]:
    if not isinstance(content, Mapping):
        raise InvalidFileError(f"Expected an object such as {_EXAMPLE} in {path}, found {type(content).__name__}.")
    genders = {}
    for folder, gender in content.items():
        if gender not in GENDERS:
            raise InvalidFileError(
                f"Expected one of {list(GENDERS)} for folder {folder!r} in {path}, found {gender!r}."
            )
        genders[str(folder)] = str(gender)
    absent = sorted(set(subjects) - set(genders))
    if absent:
        raise InvalidFileError(f"{path} lacks the folders {absent}. Add them, as in {_EXAMPLE}.")
    return genders


ANGLES = ("yaw", "roll", "pitch")
BIWI_VALIDATION_SHARE = 0.2
GENDERS_FILE = "biwi/genders.json"
MAX_POSE_BYTES = 64 * 2**10
MAX_FRAMES = 100_000
_NAME = re.compile(r"(?:.*/)?faces_0/([0-9]{2})/frame_([0-9]{5})_(rgb\.png|pose\.txt)")
_TOLERANCE = 0.1  # maximum deviation of R Rᵀ from the identity


@dataclass(frozen=True, eq=False)
class Frames:
    """Index of the frames of a folder or an archive, without the images.

    Attributes:
        path: the folder or the archive.
        names: subject and frame of each, such as ("01", "00003"), sorted.
        angles: yaw, roll and pitch in radians, (N, 3).
        skipped: frames without a pose.
    """

    path: Path
    names: tuple[tuple[str, str], ...]
    angles: Tensor
    skipped: tuple[tuple[str, str], ...]

    def read(self, side: int = RESIZED_SIDE) -> Pictures:
        """Return images (N, side, side, 3), cropped from each frame's centre square at 256×256, and angles (N, 3)."""
        images = decode_all(self._contents(), len(self.names), side=side, square=True)
        return Pictures(images, self.angles)

    def _contents(self) -> Iterator[tuple[int, str, bytes]]:
        positions = {name: position for position, name in enumerate(self.names)}
        for entry in iter_entries(self.path):
            match = _NAME.fullmatch(entry.name)
            if match is not None and match[3] == "rgb.png" and (match[1], match[2]) in positions:
                yield positions.pop((match[1], match[2])), entry.origin, entry.read(MAX_PICTURE_BYTES)
        if positions:
            raise InvalidFileError(f"{len(positions)} frames are no longer in {self.path}. Call biwi_frames again.")


@dataclass(frozen=True, eq=False)
class Biwi:
    """All frames with their images.

    Attributes:
        pictures: images (N, 256, 256, 3), and yaw, roll and pitch (N, 3).
        subjects: folder of each frame.
        genders: gender by folder.
        skipped: frames without a pose, such as ("01", "00003").
    """

    pictures: Pictures
    subjects: tuple[str, ...]
    genders: dict[str, str]
    skipped: tuple[tuple[str, str], ...]

    def split_by_gender(self, source: str, *, seed: int, angle: str | None = None) -> ShiftedPictures:
        """Return the shift from one gender to all frames of the other.

        Args:
            source: gender of the source, "female" or "male".
            seed: seed of the choice of the fifth of the source that is held out.
            angle: single angle to predict, with targets (N, 1); all three by default.
        """
        target = other_gender(source)
        inside = torch.tensor([self.genders[subject] == source for subject in self.subjects])
        if inside.all() or not inside.any():
            raise InvalidFileError(f"Expected frames of both genders, found only {source if inside.any() else target}.")
        pictures = self._of_angle(angle)
        ours = inside.nonzero().flatten()
        train, validation = split_indices(len(ours), BIWI_VALIDATION_SHARE, seed)
        centres = pictures.centre_crop()
        name = "-".join(("biwi", source, target, *([angle] if angle else [])))
        return ShiftedPictures(name, pictures.take(ours[train]), centres.take(ours[validation]), centres.take(~inside))

    def _of_angle(self, angle: str | None) -> Pictures:
        if angle is None:
            return self.pictures
        if angle not in ANGLES:
            raise OptionError(f"Expected angle to be one of {list(ANGLES)}, found {angle!r}.")
        column = ANGLES.index(angle)
        return Pictures(self.pictures.images, self.pictures.targets[:, column : column + 1])


def biwi(folder: Path, *, genders: Path | None = None) -> Biwi:
    """Read all frames as uint8 (about 3 GB).

    Args:
        folder: folder of the data sets.
        genders: JSON file with the gender of each subject; ``biwi/genders.json`` in ``folder`` by default.
    """
    frames = biwi_frames(folder)
    subjects = tuple(subject for subject, _ in frames.names)
    known = read_genders(genders or folder / GENDERS_FILE, subjects)
    return Biwi(frames.read(), subjects, known, frames.skipped)


def biwi_frames(folder: Path) -> Frames:
    """Index the frames and read their poses, without reading the images."""
    path = find_path(folder, "biwi")
    seen: set[tuple[str, str]] = set()
    poses: dict[tuple[str, str], Tensor] = {}
    for entry in iter_entries(path):
        match = _NAME.fullmatch(entry.name)
        if match is None:
            continue
        name, known = (match[1], match[2]), seen if match[3] == "rgb.png" else poses
        if name in known or len(known) == MAX_FRAMES:
            wrong = "is a duplicate" if name in known else f"exceeds the maximum of {MAX_FRAMES} frames"
            raise InvalidFileError(f"{entry.origin} {wrong}. Download the data set again.")
        if match[3] == "rgb.png":
            seen.add(name)
        else:
            poses[name] = head_angles(_parse_rotation(entry.origin, entry.read(MAX_POSE_BYTES)))
    names = tuple(sorted(seen & poses.keys()))
    if not names:
        found = f"{path} has no faces_0/NN/frame_XXXXX_rgb.png with a frame_XXXXX_pose.txt beside it."
        raise missing_dataset_error("biwi", folder, path, found=found)
    angles = torch.stack([poses[name] for name in names]).float()
    return Frames(path, names, angles, tuple(sorted(seen - poses.keys())))


def head_angles(rotation: Tensor) -> Tensor:
    """Return yaw, roll and pitch (..., 3) in radians of rotation matrices (..., 3, 3).

    Example:
        >>> head_angles(torch.eye(3)).tolist()
        [0.0, -0.0, 0.0]
    """
    r = rotation
    yaw = torch.atan2(r[..., 1, 0], r[..., 0, 0])
    roll = torch.atan2(-r[..., 2, 0], torch.hypot(r[..., 2, 1], r[..., 2, 2]))
    pitch = torch.atan2(r[..., 2, 1], r[..., 2, 2])
    return torch.stack([yaw, roll, pitch], dim=-1)


def _parse_rotation(origin: str, raw: bytes) -> Tensor:
    """Parse the first three lines of a pose file as a float64 rotation matrix (3, 3)."""
    try:
        lines = [line.split() for line in raw.decode("ascii").splitlines()[:3]]
        matrix = torch.tensor([[float(value) for value in line] for line in lines], dtype=torch.float64)
    except ValueError as error:
        raise InvalidFileError(
            f"{origin} does not begin with a rotation matrix: {error}. Download it again."
        ) from error
    if matrix.shape != (3, 3) or not bool(((matrix @ matrix.T - torch.eye(3)).abs() < _TOLERANCE).all()):
        raise InvalidFileError(
            f"Expected a rotation matrix in the first three lines of {origin}, found {str(lines)[:200]}."
        )
    return matrix
