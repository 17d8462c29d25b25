"""Our own work in the middle of the user's step."""

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_compiling

from ..handlers import from_handler
from .aside import unseen


class Inside:
    """Does things where nothing may be raised and nobody's torch modes may see it.

    Attributes:
        fault: the first exception of our own; nothing is done after it.
    """

    def __init__(self) -> None:
        self.fault: Exception | None = None

    def do(self, action: Callable[..., Any], *args: Any) -> None:
        """Call ``action``, unless ``torch.jit`` would trace it; what it raises is kept."""
        if self.fault is None and not torch._C._is_tracing():
            try:
                with unseen():
                    action(*args)
            except Exception as error:
                if from_handler(error):
                    raise
                self.fault = error

    def hook(self, action: Callable[..., Any]) -> Callable[..., None]:
        """``action`` as a hook of torch's, for the present thread: nothing is returned, so nothing is changed."""
        home = get_ident()
        return lambda *args: None if is_compiling() or get_ident() != home else self.do(action, *args)

    def tell(self) -> None:
        """Raise the fault, where the run cannot be hurt.

        Raises:
            Exception: what an action raised.
        """
        if self.fault is not None:
            raise self.fault
