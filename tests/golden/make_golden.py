"""Script that wrote the files in tests/golden/0.1.0, with regtta 0.1.0 and torch 2.

    PYTHONPATH=src:tests python tests/golden/make_golden.py

Do not run it with later versions: the files record the output of 0.1.0, from which later versions must be able to
resume. For a later version, add a new folder. Weights, inputs and predictions are stored, so that the tests do not
depend on torch's random numbers.
"""

import torch
from safetensors.torch import save_file
from torch import Tensor

import regtta
from golden.streams import FOLDER, HEADS, STREAMS, architecture, golden_model
from helpers.attaching import attach
from regtta.persistence.state_files import write_state

FOLLOWING = 2  # batches after the checkpoint, with their predictions
MONITORED = "mlp_ssa_default"


def inputs(model: str, rows: int, generator: torch.Generator, *, shift: float = 0.0, scale: float = 1.0) -> Tensor:
    shape = (3,) if model == "mlp" else (2, 4, 4)
    return torch.randn(rows, *shape, generator=generator) * scale + shift


def write_models() -> None:
    for seed, name in enumerate(HEADS):
        torch.manual_seed(seed)
        model = architecture(name).train()
        with torch.no_grad():
            for _ in range(30):  # set the running statistics of BatchNorm
                model(inputs(name, 256, torch.Generator().manual_seed(1)))
        save_file(dict(model.eval().state_dict()), FOLDER / f"{name}_weights.safetensors")


def write_statistics() -> None:
    for name, head in HEADS.items():
        source = list(inputs(name, 400, torch.Generator().manual_seed(2)).split(50))
        model = golden_model(name)
        regtta.collect(model, source, head=head).save(FOLDER / f"{name}_statistics_plain.safetensors")
        regtta.collect(model, source, head=head, methods=[regtta.FeatureRestoration()]).save(
            FOLDER / f"{name}_statistics_restoration.safetensors"
        )


def write_streams() -> None:
    for name, golden in STREAMS.items():
        generator = torch.Generator().manual_seed(3)
        batches = [
            inputs(golden.model, golden.rows, generator, shift=2.5, scale=1.5)
            for _ in range(golden.batches + FOLLOWING)
        ]
        adapter = golden.adapter()
        checkpoint = attach(regtta.Checkpoint(FOLDER / f"{name}_checkpoint.safetensors", overwrite=True), adapter)
        for x in batches[: golden.batches]:
            checkpoint.adapter.adapt(x)
        checkpoint.save()
        write_following(name, adapter, batches[golden.batches :])
    write_monitored()


def write_following(name: str, adapter: regtta.Adapter, batches: list[Tensor]) -> None:
    predictions = torch.stack([adapter.adapt(x).predictions for x in batches])
    save_file({"batches": torch.stack(batches), "predictions": predictions}, FOLDER / f"{name}_following.safetensors")


def write_monitored() -> None:
    """Write a checkpoint with the state of a monitor, and an adapter state without a checkpoint."""
    golden = STREAMS[MONITORED]
    generator = torch.Generator().manual_seed(3)
    adapter = golden.adapter()
    attach(regtta.Monitor(), adapter)
    checkpoint = attach(regtta.Checkpoint(FOLDER / "monitored_checkpoint.safetensors", overwrite=True), adapter)
    for _ in range(golden.batches):
        checkpoint.adapter.adapt(inputs(golden.model, golden.rows, generator, shift=2.5, scale=1.5))
    checkpoint.save()
    write_state(FOLDER / "state_alone.safetensors", adapter.state_dict(), overwrite=True)


def main() -> None:
    write_models()
    write_statistics()
    write_streams()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
