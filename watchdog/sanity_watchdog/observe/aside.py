"""Looking without being seen: torch modes of the user's, which may count, change or refuse what they see."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.utils import _python_dispatch


def _zero() -> int:
    return 0


dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", _zero)
function_modes: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", _zero)


def modes() -> int:
    """How many torch modes are active."""
    return dispatch_modes() or function_modes()


def unseen() -> AbstractContextManager[None]:
    """The user's torch modes, and kinds of tensors that have a say in it, see nothing of what is done inside."""
    return _aside() if modes() else torch._C.DisableTorchFunctionSubclass()


@contextmanager
def _aside() -> Iterator[None]:
    disable = getattr(_python_dispatch, "_disable_current_modes", nullcontext)
    with torch._C.DisableTorchFunction(), disable():
        yield
