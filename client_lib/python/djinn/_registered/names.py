"""Reads from bytecode which globals, attributes and modules Python code names."""

import dis
import functools
import types
import typing

# Builtins whose second argument is an attribute's name.
_TAKE_NAMES = frozenset(("getattr", "hasattr", "setattr", "delattr"))
# Methods that operators and builtins call without naming them.
_OF_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod",
    "**": "pow", "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift",
    ">>": "rshift",
}  # fmt: skip
_OF_INSTRUCTIONS = {
    "UNARY_NEGATIVE": "__neg__",
    "UNARY_POSITIVE": "__pos__",
    "CONTAINS_OP": "__contains__",
    "GET_ITER": "__iter__",
    "UNPACK_SEQUENCE": "__iter__",
    "UNPACK_EX": "__iter__",
    "CALL_FUNCTION_EX": "__iter__",
    "LIST_EXTEND": "__iter__",
    "FORMAT_VALUE": "__format__",
    "FOR_ITER": "__next__",
}
_OF_BUILTINS = {
    name: f"__{name}__"
    for name in "abs ceil divmod floor format hash len next reversed round trunc".split()
}
_OF_BUILTINS.update(dict.fromkeys(("enumerate", "iter", "list", "map", "tuple", "zip"), "__iter__"))
# Functions and attributes that return all attributes of a thing, or some whose names are data.
_TAKE_EVERYTHING = frozenset(
    "__dict__ __getattribute__ attrgetter dir getattr_static getmembers methodcaller vars".split()
)
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ENCLOSING = ("LOAD_DEREF", "LOAD_CLASSDEREF")
# Instructions between the load or import of a module and its use.
_LEAD_ON = ("LOAD_ATTR", "LOAD_METHOD", "SWAP", "POP_TOP")
_HAVE_VARIABLES = frozenset((*dis.haslocal, *dis.hasfree))
# Instructions that only test whether a thing is there, or set an attribute of it.
_LEAVE_IT = ("POP_JUMP_", "JUMP_IF_FALSE_OR_POP", "UNARY_NOT", "STORE_ATTR", "DELETE_ATTR")


class Import(typing.NamedTuple):
    """An import statement: from .name import members."""

    level: int
    name: str
    members: tuple

    def resolve(self, variables):
        """Returns the import with an absolute name, for code with these globals."""
        if not self.level:
            return self
        package = variables.get("__package__")
        if package is None:
            package = variables.get("__name__", "")
            if "__path__" not in variables:
                package = package.rpartition(".")[0]
        parts = package.split(".")
        parts = parts[: len(parts) + 1 - self.level] + [self.name] * bool(self.name)
        return Import(0, ".".join(parts), self.members)

    def modules(self):
        """Returns the names of all modules that the import may load."""
        parts = self.name.split(".")
        names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return names + [f"{self.name}.{member}" for member in self.members]


class Global(typing.NamedTuple):
    """A global of this name."""

    name: str


class Enclosing(typing.NamedTuple):
    """A variable of this name of an enclosing function."""

    name: str


class Names(typing.NamedTuple):
    """The things that code, and the code inside it, names."""

    globals: frozenset
    attributes: frozenset
    # The attributes among them that may be missing.
    sought_attributes: frozenset
    imports: frozenset
    # The functions that it uses to look up attributes that it does not name.
    searches: frozenset
    # The things that it does more with than use attributes, each as (start, attributes...). The
    # start is a Global, an Enclosing or an Import.
    passed_on: frozenset


class ObjectUses(typing.NamedTuple):
    """The attributes of its object that a method uses, if it does no more with the object."""

    named: frozenset
    # The attributes among them whose values it uses in other ways than to call them.
    taken: frozenset


@functools.lru_cache(maxsize=4096)
def names_in(code):
    """Returns the Names of code."""
    names = Names(*(set() for _ in Names._fields))
    instructions = _instructions_of(code)
    for place, instruction in enumerate(instructions):
        name = instruction.argval
        match instruction.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                names.globals.add(name)
                if name in _OF_BUILTINS:
                    names.attributes.add(_OF_BUILTINS[name])
                if name in _TAKE_NAMES:
                    sought = _name_given(instructions, place)
                    if sought is None:
                        names.searches.add(name)
                    else:
                        names.attributes.add(sought)
                        names.sought_attributes.add(sought)
            case "STORE_GLOBAL" | "DELETE_GLOBAL":
                names.globals.add(name)
            case "LOAD_ATTR" | "LOAD_METHOD" | "IMPORT_FROM":
                names.attributes.add(name)
                if name in ("ceil", "floor", "trunc"):
                    names.attributes.add(_OF_BUILTINS[name])  # of the module math
            case "STORE_ATTR" | "DELETE_ATTR":
                names.attributes.add(name)
                names.sought_attributes.add(name)
            case "IMPORT_NAME":
                level, members = (before.argval for before in instructions[place - 2 : place])
                names.imports.add(Import(level, name, members or ()))
            case "BEFORE_WITH":
                names.attributes.update(("__enter__", "__exit__"))
            case "MATCH_CLASS":
                # A class pattern names its keyword attributes in the previous
                # instruction, and the class lists its positional ones.
                names.attributes.update(instructions[place - 1].argval, ("__match_args__",))
            case "BINARY_OP":
                method = _OF_OPERATORS[instruction.argrepr.removesuffix("=")]
                names.attributes.update(f"__{kind}{method}__" for kind in ("", "r", "i"))
            case other if other in _OF_INSTRUCTIONS:
                names.attributes.add(_OF_INSTRUCTIONS[other])
    names.passed_on.update(_passed_on(instructions))
    names.searches.update(_TAKE_EVERYTHING & (names.globals | names.attributes))
    for inner in _code_in(code):
        for ours, others in zip(names, names_in(inner)):
            ours |= others
    return Names(*map(frozenset, names))


@functools.lru_cache(maxsize=4096)
def uses_of_object(code):
    """Returns the ObjectUses of a method's code, or None if it may do more with its object."""
    names = names_in(code)
    if not code.co_argcount or names.searches or "locals" in names.globals | names.attributes:
        return None
    uses = ObjectUses(set(), set())
    if not _add_uses(code, code.co_varnames[0], uses):
        return None
    if "super" in names.globals:
        # The result of super() is not followed, so every name may be one of the object's.
        uses.named.update(names.attributes)
        uses.taken.update(_attributes_taken(code))
    return ObjectUses(*map(frozenset, uses))


@functools.lru_cache(maxsize=4096)
def unread_parameters(code):
    """Returns the names of the parameters that no instruction reads, without variadic ones.

    Code that looks at frames, as locals() does, may read any of them all the same.
    """
    parameters = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    if "__class__" in code.co_freevars:
        parameters = parameters[1:]  # super() reads the first one.
    read = {
        instruction.argval
        for instruction in _instructions_of(code)
        if instruction.opcode in _HAVE_VARIABLES and instruction.opname != "STORE_FAST"
    }
    return frozenset(parameters) - read


def _add_uses(code, variable, uses):
    """Adds the uses of the object in this variable. Returns False if there may be others."""
    instructions = _instructions_of(code)
    for place, instruction in enumerate(instructions):
        if instruction.argval != variable or instruction.opcode not in _HAVE_VARIABLES:
            continue
        if instruction.opname in ("LOAD_CLOSURE", "MAKE_CELL"):
            continue  # The code inside is looked at below.
        if instruction.opname not in ("LOAD_DEREF", "LOAD_FAST"):
            return False
        before, after = instructions[place - 1], instructions[place + 1]
        if after.opname == "COPY" and after.arg == 1:
            after = instructions[place + 2]  # This is self.count += 1.
        if after.opname in ("LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"):
            uses.named.add(after.argval)
        elif after.opname == "LOAD_ATTR":
            uses.named.add(after.argval)
            uses.taken.add(after.argval)
        elif place and before.opname == "LOAD_GLOBAL" and before.argval in ("getattr", "hasattr"):
            name = _name_given(instructions, place - 1)
            if name is None:
                return False
            uses.named.add(name)
            uses.taken.add(name)
        else:
            return False
    return all(
        _add_uses(inner, variable, uses)
        for inner in _code_in(code)
        if variable in inner.co_freevars
    )


def _attributes_taken(code):
    taken = {i.argval for i in _instructions_of(code) if i.opname == "LOAD_ATTR"}
    return taken.union(*map(_attributes_taken, _code_in(code)))


def loads_enclosing(code, variable):
    """Returns whether code, or code inside it, reads a variable of an enclosing function."""
    return any(
        instruction.opname in _ENCLOSING and instruction.argval == variable
        for instruction in _instructions_of(code)
    ) or any(loads_enclosing(inner, variable) for inner in _code_in(code))


def _instructions_of(code):
    return [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]


def _code_in(code):
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _passed_on(instructions):
    """Returns Names.passed_on of code without the code inside it."""
    found = set()
    # The values to which local variables were set.
    local = {}
    imported = ()
    for place, instruction in enumerate(instructions):
        if instruction.opname in _GLOBALS:
            path = (Global(instruction.argval),)
        elif instruction.opname in _ENCLOSING:
            path = (Enclosing(instruction.argval),)
        elif instruction.opname in ("IMPORT_NAME", "IMPORT_FROM"):
            imported = path = _imported(instructions, place, imported)
        elif instruction.opname == "LOAD_FAST" and instruction.argval in local:
            path = local[instruction.argval]
        else:
            continue
        at = place + 1
        while instructions[at].opname in _LEAD_ON:
            if instructions[at].opname.startswith("LOAD_"):
                path = *path, instructions[at].argval
            at += 1
        before, after = instructions[place - 1], instructions[at]
        if after.opname == "STORE_FAST":
            local[after.argval] = path
        elif instruction.opname.startswith("IMPORT_") or after.opname.startswith(_LEAVE_IT):
            continue
        elif any(one.opname == "IS_OP" for one in instructions[at + 1 : at + 2]):
            continue
        elif place and before.opname in _GLOBALS and before.argval in _TAKE_NAMES:
            # names_in() finds the attribute that getattr() reads.
            continue
        else:
            found.add(path)
    return found


def _imported(instructions, place, before):
    """Returns the path of the thing that an import instruction loads.

    `before` is the path of the previous import instruction's thing.
    """
    instruction = instructions[place]
    if instruction.opname == "IMPORT_NAME":
        level, members = (one.argval for one in instructions[place - 2 : place])
        # Without members, the import returns the outermost package, from which
        # the submodules are then read one by one.
        name = instruction.argval if members else instruction.argval.partition(".")[0]
        return (Import(level, name, members or ()),)
    statement, *attributes = before
    if statement.members:
        attributes = []
    return statement, *attributes, instruction.argval


def _name_given(instructions, place):
    """Returns the attribute's name that a call of the builtin loaded at `place` has, or None.

    The name must be a constant.
    """
    depth = 0
    for at in range(place + 1, len(instructions)):
        instruction = instructions[at]
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            return None
        if instruction.opname == "PRECALL" and instruction.arg == depth:
            # The name is the last argument, or the one before it if a single
            # instruction makes the last argument.
            given = instructions[at - max(depth - 1, 1)] if depth in (2, 3) else None
            if given is None or given.opname != "LOAD_CONST":
                return None
            if depth == 3 and not instructions[at - 1].opname.startswith("LOAD_"):
                return None
            if instructions[at - 1].opname in ("LOAD_ATTR", "LOAD_METHOD"):
                return None
            return given.argval if isinstance(given.argval, str) else None
        depth += dis.stack_effect(instruction.opcode, instruction.arg)
        if depth < 0:
            return None
    return None
