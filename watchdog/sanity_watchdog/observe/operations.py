"""Names of torch's functions, by what they do to what is known of a tensor."""

from typing import Any

# fmt: off
ACTIVATIONS = frozenset((
    "softmax", "log_softmax", "sigmoid", "logsigmoid", "relu", "relu6", "tanh", "hardtanh", "hardsigmoid", "softplus",
    "gelu", "silu", "elu", "selu", "mish",
))
VIEWS = frozenset((
    "float", "half", "bfloat16", "double", "to", "type", "view", "reshape", "flatten", "unflatten", "squeeze",
    "unsqueeze", "transpose", "permute", "movedim", "contiguous", "clone", "__getitem__", "view_as", "reshape_as",
    "select", "narrow", "expand", "expand_as", "t", "T", "mT", "clamp", "clamp_min", "clip", "swapaxes",
    "index_select", "gather", "chunk", "split", "unbind", "flip", "roll",
))
FACTORS = frozenset((
    "mul", "div",
))
EXTREMES = frozenset((
    "min", "max", "minimum", "maximum",
))
KEEPS_VALUES = frozenset((
    "neg", "detach", "clone", "contiguous", "float", "half", "bfloat16", "double", "to",
))
KEEPS_HEAD = VIEWS | FACTORS | {"add", "log_softmax"}
CONVOLUTIONS = frozenset((
    "conv1d", "conv2d", "conv3d",
))
LAYERS = CONVOLUTIONS | frozenset((
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear", "matmul", "mm", "bmm", "addmm", "einsum",
))
MIXING = LAYERS | frozenset((
    "softmax", "scaled_dot_product_attention", "multi_head_attention_forward", "layer_norm", "group_norm",
    "batch_norm", "instance_norm", "rms_norm", "lstm", "gru", "rnn_tanh", "rnn_relu", "embedding",
))
JOINS = frozenset((
    "add", "cat", "hstack", "stack",
))
SUBTRACTS = frozenset((
    "sub", "rsub",
))
ADDITIONS = SUBTRACTS | {"add"}
REDUCES = frozenset((
    "mean", "sum", "norm", "nanmean",
))
NORMS = frozenset((
    "norm", "vector_norm", "linalg_norm", "linalg_vector_norm",
))
UNITS = frozenset((
    "normalize", "_weight_norm",
))
RECURRENT = frozenset((
    "lstm", "gru", "rnn_tanh", "rnn_relu",
))
CELLS = frozenset(f"{name}_cell" for name in RECURRENT)
READS = frozenset((
    "item", "tolist", "numpy", "__float__", "__array__",
))
SILENT = frozenset((
    "size", "dim", "numel", "shape", "device", "dtype", "layout", "requires_grad", "is_leaf", "grad_fn", "grad",
    "ndim", "is_cuda", "is_sparse", "stride", "data_ptr", "ndimension", "retain_grad", "zeros_like",
    "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_empty", "new_full",
))
AS_ANOTHER = frozenset((
    "type_as", "to", "expand_as", "view_as", "reshape_as",
))
FROM_HOST = frozenset((
    "tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "from_file", "from_dlpack", "new_tensor", "Tensor",
))
DRAWS = frozenset((
    "rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "normal", "uniform", "random",
    "exponential", "log_normal", "cauchy", "multinomial", "poisson", "randperm",
))
RESHAPES = frozenset((
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as",
))
MOVES = frozenset((
    "transpose", "permute", "movedim", "moveaxis", "swapaxes", "swapdims", "t", "T", "mT", "select", "narrow", "chunk",
    "split", "unbind", "__getitem__", "index_select", "flip", "roll",
))
ELEMENTWISE = ACTIVATIONS | FACTORS | ADDITIONS | KEEPS_VALUES | frozenset((
    "pow", "square", "sqrt", "rsqrt", "exp", "log", "log1p", "abs", "sign", "sin", "cos", "reciprocal",
    "clamp", "clip", "clamp_min", "clamp_max", "remainder", "__floordiv__", "floor_divide", "eq", "ne", "lt", "le",
    "gt", "ge", "where", "masked_fill", "dropout", "layer_norm", "long", "int", "type", "bool", "cpu", "cuda",
    "round", "floor", "logical_not", "logical_and", "logical_or", "nan_to_num",
))
SPREADS = frozenset((
    "expand", "expand_as", "broadcast_to",
))
LIKE_ANOTHER = frozenset((
    "expand_as", "view_as", "reshape_as", "type_as",
))
HOOKS = frozenset((
    "register_hook", "register_multi_grad_hook",
))
SPELLINGS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add",
    "__sub__": "sub", "__isub__": "sub", "subtract": "sub", "__rsub__": "rsub",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul", "multiply": "mul",
    "__truediv__": "div", "__div__": "div", "__itruediv__": "div", "__idiv__": "div", "divide": "div",
    "true_divide": "div", "__rtruediv__": "rdiv", "__rdiv__": "rdiv",
    "__neg__": "neg", "negative": "neg", "__pow__": "pow", "__matmul__": "matmul",
    "concat": "cat", "concatenate": "cat",
}
"""Other names of the same functions. Of those that take their operands the other way round the name begins with r."""
# fmt: on


def name_of(function: Any) -> str:
    """Name of a torch function, one for all its spellings; of the attribute where it is a getter."""
    name = str(getattr(function, "__name__", ""))
    if name == "__get__":
        return str(getattr(getattr(function, "__self__", None), "__name__", name))
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return SPELLINGS.get(name, name)
