"""Reconstruction of the command line from options."""

import shlex

from regtta.commands.options.adapt import AdaptOptions


def command_line(options: AdaptOptions) -> str:
    """Return the command line that corresponds to ``options``.

    Example:
        >>> from pathlib import Path
        >>> command_line(AdaptOptions(model="mymodel:make", data="target.csv", record=Path("run.json")))
        'regtta adapt --model mymodel:make --data target.csv --record run.json'
    """
    named: dict[str, object] = {
        "--model": options.model,
        "--weights": options.weights,
        "--stats": options.stats,
        "--method": None if options.method == AdaptOptions.method else options.method,
        "--protocol": None if options.protocol is AdaptOptions.protocol else options.protocol.value,
        "--data": options.data,
        "--columns": ",".join(options.columns) or None,
        "--target": options.target,
        "--inputs": options.inputs,
        "--batch-size": options.batch_size,
        "--head": options.head,
        "--device": options.device,
        "--shuffle-seed": options.shuffle_seed,
        "--precision": options.precision,
        **options.outputs,
        "--checkpoint": options.checkpoint,
        "--checkpoint-every": None
        if options.checkpoint_every == AdaptOptions.checkpoint_every
        else options.checkpoint_every,
        "--tensorboard": options.tensorboard,
    }
    words = ["regtta", "adapt"]
    words += [word for option, value in named.items() if value is not None for word in (option, str(value))]
    words += [word for setting in options.settings for word in ("--set", setting)]
    flags = {
        "--safe": options.safe,
        "--fast": options.fast,
        "--resume": options.resume,
        "--allow-mismatch": options.allow_mismatch,
        "--force": options.force,
    }
    return shlex.join([*words, *(flag for flag, given in flags.items() if given)])
