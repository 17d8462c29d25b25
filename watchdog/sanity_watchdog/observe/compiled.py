"""Whether a function that ``torch.compile`` made is still alive: none can be reached where none is left."""

import gc
import sys
from types import CodeType, FunctionType, ModuleType

_looked: dict[int, bool] = {}


def any_alive(frames: ModuleType) -> bool:
    """Is any such function alive? True where that cannot be told. ``frames`` is Dynamo's ``eval_frame``.

    Whatever runs compiled code enters it by one of these, and all share few code objects. All objects of the process
    are looked through (a tenth of a second in a large one), and again only after the references to those code objects
    have changed in number, as a new function changes it.
    """
    making = vars(getattr(frames, "_TorchDynamoContext", object)).get("__call__")
    codes = [c for c in getattr(getattr(making, "__code__", None), "co_consts", ()) if isinstance(c, CodeType)]
    if not codes or gc.get_freeze_count():  # frozen objects are not listed
        return True
    count = sum(map(sys.getrefcount, codes))
    if count not in _looked:
        _looked.clear()
        places = set(map(id, codes))
        _looked[count] = any(type(o) is FunctionType and id(o.__code__) in places for o in gc.get_objects())
    return _looked[count]
