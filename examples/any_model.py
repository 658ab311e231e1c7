"""Adapt an unchanged model of torchvision: find its head, save its statistics, resume its stream."""

import tempfile
from pathlib import Path

import torch
import torchvision

import regtta


def main() -> None:
    """Collect, save, adapt, stop, resume, export."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=3).eval()  # three outputs
    folder = Path(tempfile.mkdtemp())

    source = regtta.collect(model, torch.rand(96, 3, 64, 64).split(16))
    source.save(folder / "resnet.safetensors")
    print(f"head {source.head!r}, {source.dimensions} features, rank {source.rank}")

    stream = (torch.rand(64, 3, 64, 64) * 0.5).split(16)
    for stop in (2, 4):  # the second adapter resumes where the first one stopped
        checkpoint = regtta.Checkpoint(folder / "stream.safetensors")
        with regtta.Adapter(
            model, "ssa", folder / "resnet.safetensors", k=20, lr=1e-4, callbacks=[checkpoint]
        ) as adapter:
            for step in adapter.run(stream[checkpoint.resume() : stop]):
                print(step)
    print(adapter.summary())
    print(f"deployable: {type(adapter.export()).__name__}")


if __name__ == "__main__":
    main()
