"""What the user calls a parameter."""

from torch import Tensor, nn

WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""Path components that ``torch.compile``, FSDP and activation checkpoints put into a module's names."""


def plain_name(name: str) -> str:
    """``name`` as the user wrote it, without the wrappers around compiled, sharded or checkpointed modules."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def parameter_names(module: nn.Module) -> dict[int, str]:
    """First name of every parameter by ``id``; a tied weight has one name."""
    return {id(parameter): plain_name(name) for name, parameter in module.named_parameters()}


def named_trainable(module: nn.Module) -> dict[str, Tensor]:
    """Parameters that require a gradient, by their first name, in registration order."""
    return {plain_name(name): p for name, p in module.named_parameters() if p.requires_grad}


def named_all(module: nn.Module) -> dict[str, Tensor]:
    """All parameters by their first name, in registration order: what is frozen now may be trained later."""
    return {plain_name(name): p for name, p in module.named_parameters()}


def parameter_owners(module: nn.Module) -> dict[str, nn.Module]:
    """The module that registered a parameter, by the parameter's first name."""
    seen: set[int] = set()
    owners: dict[str, nn.Module] = {}
    for path, owner in module.named_modules():
        for name, parameter in owner._parameters.items():  # as torch itself names them: a method may be overridden
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                owners[plain_name(f"{path}.{name}" if path else name)] = owner
    return owners
