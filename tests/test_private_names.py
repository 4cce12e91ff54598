"""Private names of torch, transformers and others that the package uses. A new release may drop or change any of them:
then the line that fails here, in the workflow's "newest" job, says which one and where it is used."""

import ast
import inspect
from importlib import import_module

import pytest
import torch

from helpers.house import SOURCE, nodes_of, source_files

# (module, name in it, file that uses it)
PRIVATE = (
    ("torch", "_foreach_zero_", "decoding/replay.py"),
    ("torch.nn", "Module._forward_hooks", "decoding/replay.py"),
    ("torch.nn", "Module._forward_pre_hooks", "decoding/replay.py"),
    ("torch.nn", "Module._compiled_call_impl", "decoding/replay.py"),
    ("torch.nn", "Module._parameters", "decoding/replay.py"),
    ("torch.nn", "Module._buffers", "decoding/replay.py"),
    ("torch.nn", "Module._modules", "models/families/experts.py"),
    ("torch", "ops.aten._softmax_backward_data.out", "models/attention/stored_weights.py"),
    ("torch._compile", "_disable_dynamo", "models/families/experts.py"),
    ("torch", "_scaled_mm", "models/families/quantise.py"),
    ("torch._dynamo", "config.recompile_limit", "models/model.py"),
    ("transformers", "PreTrainedModel._supports_attention_backend", "models/checkpoints/configuration.py"),
    ("transformers", "PreTrainedModel._no_split_modules", "models/model.py"),
    ("transformers", "PreTrainedConfig._attn_implementation", "models/checkpoints/original_code.py"),
    ("transformers", "TrainingArguments._n_gpu", "training/arguments.py"),
    ("typer.core", "TyperOption._get_number_range_help_str", "cli/hints.py"),
)
DOCUMENTED = {"_replace", "_asdict", "_fields"}  # of named tuples


def has(module, name):
    """Whether the module has it, as an attribute or, of a class, as one that its instances get."""
    owner = import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    if hasattr(owner, last) or not inspect.isclass(owner):
        return hasattr(owner, last)
    if issubclass(owner, torch.nn.Module):
        return last in vars(torch.nn.Linear(1, 1))
    return f"self.{last}" in inspect.getsource(owner)


@pytest.mark.parametrize(("module", "name", "used_in"), PRIVATE, ids=lambda value: value)
def test_a_private_name_that_is_used_exists(module, name, used_in):
    assert has(module, name), f"{module}.{name} is gone; maskwise/{used_in} uses it"
    assert name.rpartition(".")[2] in (SOURCE / "maskwise" / used_in).read_text(), f"{used_in} no longer uses {name}"


def private_names():
    """{name: file} of private attributes and imports in the package that it does not define itself."""
    nodes = [(node, file) for file in source_files().values() for node in nodes_of(file)]
    defined = {node.name for node, _ in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {node.id for node, _ in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own = [node for node, _ in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls")]
    defined |= {node.attr for node in own if isinstance(node.ctx, ast.Store)}
    found = {}
    for node, file in nodes:
        if isinstance(node, ast.ImportFrom) and not str(node.module).startswith("maskwise"):
            names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
        else:
            names = [node.attr] if isinstance(node, ast.Attribute) else []
        found |= {name: file for name in names if name.startswith("_") and name[1:2].isalpha() and name not in defined}
    return found


def test_every_private_name_that_the_package_takes_from_others_is_listed():
    listed = {part for module, name, _ in PRIVATE for part in f"{module}.{name}".split(".")}
    missing = {name: str(file.relative_to(SOURCE)) for name, file in private_names().items() if name not in listed}
    assert missing.keys() <= DOCUMENTED, missing
