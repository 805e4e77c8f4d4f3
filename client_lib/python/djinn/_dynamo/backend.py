"""The backend "djinn" of torch.compile.

Dynamo traces a program's code, guards what the code depends on, and passes each graph that it
finds to a backend. This one captures a graph's first call on given sizes and parameters, and
replays later ones: one message for all operators. AOTAutograd makes two graphs, forward and
backward, of a graph that needs gradients.
"""

import logging
import operator
import os
import re
import threading
import types

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.runtime_wrappers import _AnalyzeCustomOpInputOutputMode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._python_dispatch import (
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass,
)

from djinn import _djinn
from djinn._autocast import begin_in_this_thread
from djinn._debug import DJINN_FOLDER, LIBRARY_FOLDERS
from djinn._dynamo import configuration
from djinn._dynamo.division import CAPTURED, LATE, divide, name_of_part
from djinn._dynamo.nodes import is_remote, is_tensor, name_of, tensors_of, value_of
from djinn._dynamo.rewrites import rewrite
from djinn._operators import is_of_pytorch, kernels_in_python, qualified_name_of
from djinn._refusals import NEVER_ALIKE, Differences, describe, is_passing, is_silent, warn

# The packages whose functions in graphs do nothing but call operators. Dynamo does not trace
# those of einops.
_PURE_PACKAGES = frozenset(("_operator", "builtins", "einops", "math", "torch"))
# The number of captures in succession that are refused before a graph is not captured any more.
_MAX_REFUSALS = 2
# Twice the largest number of captured graphs of one callable.
_MAX_RESTS = 8192
# The higher-order operators that consist of the operators that they call.
_HIGHER_ORDER = frozenset(
    "associative_scan autograd_function_apply cond flex_attention flex_attention_backward "
    "invoke_subgraph map_impl scan tag_activation_checkpoint while_loop wrap "
    "wrap_activation_checkpoint wrap_with_autocast wrap_with_set_grad_enabled".split()
)


class _Thread(threading.local):
    """The traced call (traced.py) whose graphs this thread executes, or None."""

    call = None


thread = _Thread()


def _note_untraced(record):
    """Notes why Dynamo calls a function of a traced call as it is, instead of a long log line."""
    if thread.call is not None and "hit config." in str(record.msg) and len(record.args) > 3:
        # It is the limit of traces of one code.
        guard = str(record.args[3]).partition("#")[0].strip()
        thread.call.untraced = f"it traced it {record.args[1]} times, last because of {guard}"[:200]
    if thread.call is None or not record.exc_info:
        return True
    text = str(record.exc_info[1])
    cause = re.search(r"got \w+\(['\"](.*)['\"]\)", text)
    thread.call.untraced = (cause[1] if cause else text.strip().partition("\n")[0])[:200]
    return bool(os.environ.get("TORCH_LOGS"))


logging.getLogger("torch._dynamo.convert_frame").addFilter(_note_untraced)


class Captures:
    """The captured calls of one graph, of a traced callable or of all that call it otherwise."""

    def __init__(self, name):
        self.callable = _djinn.RegisteredCallable(name, True)
        # The results that are no tensors, by captured graph; most graphs have none.
        self.rest = {}
        self.former_rest = {}
        self.lock = threading.Lock()
        # The number of consecutive captures that were refused, and why the last one was.
        self.refusals = 0
        self.refusal = ""
        self.is_warned = False
        self.differences = Differences()


def djinn(graph, example_inputs, mode=None, **options):
    """Compiles a graph for torch.compile(backend="djinn"), which calls this function.

    A mode says how a compiler trades its own time and memory for speed. It changes no result and
    has no effect here.
    """
    if options:
        raise TypeError(f'backend="djinn" takes no options, got {", ".join(sorted(options))}')
    if thread.call is not None:
        thread.call.codes.update(torch._guards.TracingContext.get_traced_code() or ())
    place = Place(graph)
    if not _needs_gradients(graph) and not _has_wrapped_inputs(graph):
        execute = _executor(graph, _static_inputs(graph), place, False)
        return lambda *args: execute(list(args))

    def forward(part, _):
        context = torch._guards.TracingContext.try_get()
        metadata = context and context.fw_metadata
        static = metadata.static_input_indices if metadata else ()
        return _boxed(_executor(part, static, place, True))

    def backward(part, _):
        return _boxed(_executor(part, (), place, True))

    compiler = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=forward,
        keep_inference_input_mutations=True,
    )
    return compiler(graph, example_inputs)


# The calls of djinn.compile() go on where Dynamo cannot trace.
configuration.teach(djinn, lambda: thread.call is not None)


class Place:
    """The place in the program's code from which a graph comes."""

    def __init__(self, graph):
        self._lines = [
            (name_of(node.target), line)
            for node in graph.graph.nodes
            if node.op.startswith("call") and (line := _line_of(node))
        ]
        # Names the called function if no line of the graph is the program's.
        self._whole = "a graph" if thread.call is None else describe(thread.call.called)
        self.name = self._lines[0][1][2] if self._lines else self._whole.partition(" (")[0]

    def describe(self, refusal):
        """Returns the function and the line that a refusal concerns, or those of the beginning."""
        if not self._lines:
            return self._whole
        named = re.search(r"(?:aten|prims?)::(\w+)", refusal)
        lines = [line for name, line in self._lines if named and _is_called(name, named[1])]
        file, number, function = lines[0] if lines else self._lines[0][1]
        return f"{function} ({file}:{number})"


class Graph:
    """Executes a graph and replays its calls. Thread-safe if the graph is.

    The graph's inputs at `static` stay the same tensors. AOTAutograd consumes the results of an
    internal graph; the program gets other tensors from it.
    """

    def __init__(self, graph, static, place, is_internal):
        self._run = _code_of(graph)
        self._is_internal = is_internal
        static = set(static)
        inputs = [value_of(node) for node in graph.graph.find_nodes(op="placeholder")]
        constants = [tensor for _, tensor in _constants_of(graph)]
        tensors = [i for i, one in enumerate(inputs) if is_tensor(one)]
        self._tensors = _picker([i for i in tensors if i not in static])
        self._static = _picker([i for i in tensors if i in static])
        self._numbers = [i for i, one in enumerate(inputs) if not is_tensor(one)]
        self._constants = constants
        self._place = place
        self._captures = Captures(place.name)

    def __call__(self, args):
        begin_in_this_thread()
        call = thread.call
        if torch._C._len_torch_dispatch_stack():
            if not _must_be_seen():
                with _disable_current_modes():
                    return self(args)
            if call is not None:
                call.graphs += 1
            return self._run_as_it_is(args)
        captures = self._captures
        if call is not None:
            call.graphs += 1
            captures = call.captures_of(self)
        if captures.refusals >= _MAX_REFUSALS and not is_passing(captures.refusal):
            return self._refused(captures, call, args)
        operands = self._key(args), self._tensors(args), self._static(args) + self._constants
        found = captures.callable.replay(*operands)
        if found is not None:
            if call is not None:
                call.replayed += 1
            number, outputs = found
            return _complete(captures, number, outputs) if captures.rest else outputs
        captures.differences.look_at(operands[0], operands[1])
        if not captures.callable.begin(*operands, 0):
            return self._refused(captures, call, args)
        try:
            results = self._run_as_it_is(args)
            outputs = list(filter(is_tensor, results))
        except BaseException:
            captures.callable.abandon()
            raise
        if not self._is_internal and any(one.requires_grad for one in outputs):
            captures.callable.abandon()
            captures.refusals += 1
            captures.refusal = "it returns a view of a tensor that requires gradients"
            self._note(captures, call, captures.refusal)
            return results
        with captures.lock:
            number = captures.callable.end(outputs)
            if number and len(outputs) < len(results):
                _keep(captures, number, results)
        captures.refusals = 0 if number else captures.refusals + 1
        captures.refusal = "" if number else captures.callable.statistics()[2]
        if not number:
            self._note(captures, call, captures.refusal)
        elif call is not None:
            call.captured += 1
        return results

    def _run_as_it_is(self, args):
        results = self._run(*args)
        # A part may have a single result, a tensor or a number.
        return results if isinstance(results, (tuple, list)) else (results,)

    def _key(self, args):
        # A kernel in Python that the program registers changes what operators do.
        key = f"{len(torch.library._impls)}"
        return key + repr([args[i] for i in self._numbers]) if self._numbers else key

    def _refused(self, captures, call, args):
        refusal = captures.refusal or captures.callable.statistics()[2]
        if refusal == NEVER_ALIKE:
            refusal = captures.differences.describe()
        self._note(captures, call, refusal)
        return self._run_as_it_is(args)

    def _note(self, captures, call, refusal):
        if is_silent(refusal):
            return
        if call is not None:
            call.refusal = refusal
        if is_passing(refusal) and captures.refusals < _MAX_REFUSALS:
            return
        if not captures.is_warned:
            captures.is_warned = True
            warn(self._place.describe(refusal), refusal, advice="")


def _keep(captures, number, results):
    """Keeps the results that are no tensors. The caller holds the lock."""
    if len(captures.rest) >= _MAX_RESTS:
        # Another thread may have replayed a graph that is forgotten now.
        captures.former_rest = captures.rest
        kept = captures.callable.captured_graphs()
        captures.rest = {one: captures.rest[one] for one in kept if one in captures.rest}
    captures.rest[number] = [None if is_tensor(one) else (one,) for one in results]


def _complete(captures, number, outputs):
    rest = captures.rest.get(number)
    if rest is None:
        with captures.lock:
            rest = captures.rest.get(number) or captures.former_rest[number]
    tensors = iter(outputs)
    return [next(tensors) if one is None else one[0] for one in rest]


def _must_be_seen():
    """Returns whether a mode of the thread must see every operator.

    AOTAutograd looks at the operators of a graph's first call, but only at those of the program.
    A graph with such operators is not captured.
    """
    modes = _get_current_dispatch_mode_stack()
    return not all(isinstance(one, _AnalyzeCustomOpInputOutputMode) for one in modes)


def _part(graph, is_single):
    """Returns a function that executes a graph as a part of another one."""

    def part(*args):
        results = graph(list(args))
        return results[0] if is_single else results

    return part


def _code_of(graph):
    """Returns a function that executes a graph without the hooks of modules."""
    _LazyGraphModule.force_recompile(graph)
    return graph.forward


def _executor(graph, static, place, is_internal):
    """Returns a function of a list of inputs that executes the graph, and replays what it can."""
    rewrite(graph)
    run = _code_of(graph)
    inputs = [value_of(node) for node in graph.graph.find_nodes(op="placeholder")]
    constants = [tensor for _, tensor in _constants_of(graph)]
    if not any(map(is_remote, inputs + constants)):
        return _unboxed(run)
    if refusal := _refusal_of(graph):
        return _refused(run, place, refusal)
    division = divide(graph)
    if division is None:
        return Graph(graph, static, place, is_internal)
    part = division.part(CAPTURED)
    if part is None:
        run = _code_of(graph)
        return _refused(run, place, division.refusal) if division.refusal else _unboxed(run)
    # The names of the graph's inputs stay, so that static ones are known.
    names = [node.target for node in graph.graph.find_nodes(op="placeholder")]
    static_names = {names[i] for i in static}
    nodes = part.graph.find_nodes(op="placeholder")
    static = [i for i, node in enumerate(nodes) if node.target in static_names]
    executed = Graph(part, static, place, is_internal)
    (output,) = part.graph.find_nodes(op="output")
    is_single = isinstance(output.args[0], torch.fx.Node)
    divided = division.whole
    for name, part in list(divided.named_children()):
        # A module would call the hooks of all modules.
        if isinstance(part, torch.fx.GraphModule):
            delattr(divided, name)
            if name == name_of_part(CAPTURED):
                part = _part(executed, is_single)
            elif name == name_of_part(LATE) and division.refusal:
                part = _noted(_code_of(part), place, division.refusal)
            else:
                part = _code_of(part)
            setattr(divided, name, part)
    return _unboxed(_code_of(divided))


def _unboxed(run):
    """Returns a function of a list of the inputs of `run`."""
    return lambda args: run(*args)


def _refused(run, place, refusal):
    """Returns a function of a list of the inputs of `run`, a graph, that warns once."""
    run = _noted(run, place, refusal)

    def execute(args):
        if thread.call is not None:
            thread.call.graphs += 1
        return run(*args)

    return execute


def _noted(run, place, refusal):
    """Returns a function that calls `run`, notes the refusal, and warns once."""
    warned = []

    def execute(*args):
        if thread.call is not None:
            thread.call.refusal = refusal
        if not warned:
            warned.append(True)
            warn(place.describe(refusal), refusal, advice="")
        return run(*args)

    return execute


def _refusal_of(graph):
    """Returns why a graph must not be captured, or an empty string."""
    for node in graph.graph.nodes:
        if node.op == "call_module":
            return f"it calls the module {node.target} as a whole (allow_in_graph)"
        if node.op == "get_attr":
            inner = _attribute(graph, node.target)
            if isinstance(inner, torch.fx.GraphModule) and (refusal := _refusal_of(inner)):
                return refusal
        if node.op != "call_function":
            continue
        target = node.target
        if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            if _has_python_kernel(target):
                return f"it calls {target}, which has a kernel in Python"
        elif isinstance(target, torch._ops.HigherOrderOperator):
            if target.name() not in _HIGHER_ORDER:
                return f"it calls {target.name()}, which is not known to have no other effect"
        elif not isinstance(target, types.BuiltinFunctionType):
            module = getattr(target, "__module__", None) or ""
            if module.partition(".")[0] not in _PURE_PACKAGES:
                return f"it calls {name_of(target)} as a whole (allow_in_graph)"
    return ""


def _has_python_kernel(target):
    name = qualified_name_of(target)
    return not is_of_pytorch(name) and (
        name in torch._library.custom_ops.OPDEFS
        or any(not kernel.endswith("/Meta") for kernel in kernels_in_python(name))
    )


def _needs_gradients(graph):
    """Returns whether autograd records any of the graph's results.

    A view of a parameter requires gradients even if it was made without them. Only the program
    must not get such a view from a replay.
    """
    inputs = {id(value_of(node)) for node in graph.graph.find_nodes(op="placeholder")}
    (output,) = graph.graph.find_nodes(op="output")
    returned = set(output.all_input_nodes)
    return any(
        tensor.requires_grad
        and id(tensor) not in inputs
        and (node in returned or not _is_view_without_gradients(tensor))
        for node in graph.graph.nodes
        if node.op not in ("placeholder", "get_attr", "output")
        for tensor in tensors_of(node)
    )


def _has_wrapped_inputs(graph):
    """Returns whether an input is a tensor that consists of others, such as a quantized weight.

    AOTAutograd replaces such an input by its inner tensors.
    """
    inputs = graph.graph.find_nodes(op="placeholder")
    return any(is_traceable_wrapper_subclass(value_of(node)) for node in inputs)


def _is_view_without_gradients(tensor):
    metas = torch._C._autograd.CreationMeta
    return tensor._is_view() and torch._C._autograd._get_creation_meta(tensor) == metas.NO_GRAD_MODE


def _static_inputs(graph):
    """Returns the positions of parameters and buffers of modules."""
    return [
        i
        for i, node in enumerate(graph.graph.find_nodes(op="placeholder"))
        if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    ]


def _constants_of(graph):
    """Yields (name, tensor) for each tensor that the graph has as an attribute."""
    for name in {node.target: None for node in graph.graph.find_nodes(op="get_attr")}:
        value = _attribute(graph, name)
        if isinstance(value, torch.Tensor):
            yield name, value


def _attribute(graph, name):
    return operator.attrgetter(name)(graph)


def _picker(positions):
    """Returns a function that returns a list of the elements at these positions."""
    if not positions:
        return lambda args: []
    if len(positions) == 1:
        (position,) = positions
        return lambda args: [args[position]]
    pick = operator.itemgetter(*positions)
    return lambda args: list(pick(args))


def _boxed(execute):
    """Returns a function that takes the list of its inputs over, as AOTAutograd wants it."""

    def boxed(args):
        results = execute(args)
        args.clear()
        return results

    boxed._boxed_call = True
    return boxed


def _is_called(name, operator_name):
    """Returns whether a node's target is this operator: linear, linear_, aten.linear.default."""
    wanted = operator_name.strip("_").removesuffix("_local_scalar_dense")
    return name.rstrip("_").partition(".")[0] == wanted


def _line_of(node):
    """Returns (file, line, function) of the program's line from which a node comes, or None."""
    lines = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', node.meta.get("stack_trace") or "")
    # A call of djinn.compile() begins in Djinn's code.
    found = [line for line in lines if not line[0].startswith(DJINN_FOLDER)]
    own = [line for line in found if not line[0].startswith(LIBRARY_FOLDERS)]
    return (own or found or [None])[-1]
