"""Parameters of a model's ``forward``, which decide which entries of a batch it takes."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class ForwardParameters:
    """Parameters of a model's ``forward``.

    Attributes:
        required: names of those without a default value.
        positional: names of those that can be passed by position.
        named: names of those that can be passed by keyword.
        any_name: True if it accepts any keyword.
    """

    required: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    any_name: bool = False

    @classmethod
    def of(cls, model: nn.Module) -> "ForwardParameters":
        """Return the parameters of ``model.forward``; those of the inner model for a wrapper around one."""
        try:
            parameters = inspect.signature(model.forward).parameters.values()
        except (TypeError, ValueError):  # a compiled function
            return cls()
        kinds = {parameter.kind for parameter in parameters}
        children = list(model.children())
        if kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} and len(children) == 1:
            return cls.of(children[0])  # a wrapper, such as torch.compile's or peft's
        by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return cls(
            tuple(p.name for p in parameters if p.default is p.empty and p.kind in {*by_position, *by_name}),
            tuple(p.name for p in parameters if p.kind in by_position),
            tuple(p.name for p in parameters if p.kind in by_name),
            inspect.Parameter.VAR_KEYWORD in kinds,
        )

    def accepts(self, keys: Sequence[object]) -> bool:
        """Return True if entries with these keys are passed by keyword, False if by position, in their order."""
        if not all(isinstance(key, str) for key in keys):
            return False
        known = [key in self.named for key in keys]
        # A name that is not a parameter, among others that are, or of a wrapper without parameters of its own.
        return all(known) or (self.any_name and (any(known) or not self.positional))
