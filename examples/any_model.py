"""A model from torchvision, unchanged: its head is found, its statistics kept, its stream resumed."""

import tempfile
from pathlib import Path

import torch
import torchvision

import regtta


def main() -> None:
    """Collect, save, adapt, stop, go on, export."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=3).eval()  # three outputs
    folder = Path(tempfile.mkdtemp())

    source = regtta.collect(model, torch.rand(96, 3, 64, 64).split(16))
    source.save(folder / "resnet.safetensors")
    print(f"head {source.head!r}, {source.dimensions} features, rank {source.rank}")

    source = regtta.SourceStatistics.load(folder / "resnet.safetensors")
    adapter = regtta.Adapter(model, regtta.SSA(k=20), source, lr=1e-4)
    stream = (torch.rand(64, 3, 64, 64) * 0.5).split(16)
    for step in adapter.run(stream[:2]):
        print(f"batch {step.index}: loss {step.diagnostics.loss:.2f}, {tuple(step.predictions.shape)}")
    torch.save(adapter.state_dict(), folder / "stream.pt")

    resumed = regtta.Adapter(model, regtta.SSA(k=20), source, lr=1e-4)
    resumed.load_state_dict(torch.load(folder / "stream.pt", weights_only=True))
    for step in resumed.run(stream[2:]):
        print(f"batch {step.index}: loss {step.diagnostics.loss:.2f}, {tuple(step.predictions.shape)}")
    print(f"deployable: {type(resumed.export()).__name__}")


if __name__ == "__main__":
    main()
