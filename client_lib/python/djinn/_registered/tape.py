"""Notes the calculations with the floats of one call, so that they can be repeated with others."""

import operator


class Tape:
    """The calculations with the numbers of one call, in order."""

    def __init__(self, leaves):
        self.leaves = leaves
        # (function, operands), where an operand is (index,) of an earlier value, or a constant.
        self.steps = []
        self.values = list(leaves)
        # (function, operands, answer) of each comparison.
        self.conditions = []
        # True if something was done with a number that the tape does not note.
        self.is_lost = False
        # The steps and conditions as keys, which differ for 0.0 and -0.0.
        self._known = {}
        self._known_conditions = {}

    def leaf(self, index):
        return Number(self.leaves[index], self, index)

    def calculate(self, function, *operands):
        if self._has_others(operands):
            return function(*map(plain_of, operands))
        operands = tuple(map(self._operand, operands))
        step = _key(function, operands)
        index = self._known.get(step)
        if index is None:
            value = function(*[_value_of(one, self.values) for one in operands])
            if type(value) is not float:
                # A negative number to the power of a fraction.
                self.is_lost = True
                return value
            index = self._known[step] = len(self.values)
            self.steps.append((function, operands))
            self.values.append(value)
        return Number(self.values[index], self, index)

    def compare(self, function, *operands):
        if self._has_others(operands):
            return function(*map(plain_of, operands))
        operands = tuple(map(self._operand, operands))
        answer = function(*[_value_of(one, self.values) for one in operands])
        if (key := (*_key(function, operands), answer)) not in self._known_conditions:
            self._known_conditions[key] = None
            self.conditions.append((function, operands, answer))
        return answer

    def repeat(self, leaves):
        """Returns all values for other leaves, or None if a comparison has another answer."""
        values = list(leaves)
        try:
            for function, operands in self.steps:
                value = function(*[_value_of(one, values) for one in operands])
                if type(value) is not float:
                    return None
                values.append(value)
            for function, operands, answer in self.conditions:
                if function(*[_value_of(one, values) for one in operands]) != answer:
                    return None
        except ArithmeticError:
            # The optimizer's code raises it, too.
            return None
        return values

    def is_like(self, other):
        """Returns whether the same was calculated and compared, with other leaves."""
        return list(self._known) == list(other._known) and list(self._known_conditions) == list(
            other._known_conditions
        )

    def _has_others(self, operands):
        """Returns whether there are Numbers of another tape, with which this one is lost."""
        found = any(type(one) is Number and one.tape is not self for one in operands)
        self.is_lost |= found
        return found

    def _operand(self, thing):
        return (thing.index,) if type(thing) is Number else thing


def _key(function, operands):
    return function, *((type(one), repr(one)) for one in operands)


def _value_of(operand, values):
    return values[operand[0]] if type(operand) is tuple else operand


class Number(float):
    """A float that notes what is calculated with it."""

    __slots__ = ("tape", "index")

    def __new__(cls, value, tape, index):
        number = super().__new__(cls, value)
        number.tape, number.index = tape, index
        return number


def _binary(function):
    def calculate(self, other):
        if not isinstance(other, (int, float)):
            return NotImplemented
        return self.tape.calculate(function, self, other)

    def reflected(self, other):
        if not isinstance(other, (int, float)):
            return NotImplemented
        return self.tape.calculate(function, other, self)

    return calculate, reflected


def _comparison(function):
    def compare(self, other):
        if not isinstance(other, (int, float)):
            return NotImplemented
        return self.tape.compare(function, self, other)

    return compare


def _loses(name):
    plain = getattr(float, name)

    def lose(self, *args):
        self.tape.is_lost = True
        return plain(self, *args)

    return lose


for _name, _function in {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "truediv": operator.truediv, "pow": operator.pow,
}.items():
    _forward, _backward = _binary(_function)
    setattr(Number, f"__{_name}__", _forward)
    setattr(Number, f"__r{_name}__", _backward)
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(Number, f"__{_name}__", _comparison(getattr(operator, _name)))
Number.__neg__ = lambda self: self.tape.calculate(operator.neg, self)
Number.__pos__ = lambda self: self
Number.__abs__ = lambda self: self.tape.calculate(operator.abs, self)
Number.__bool__ = lambda self: self.tape.compare(operator.truth, self)


def _plain(self, *args):
    self.tape.is_lost = True
    return float.__float__(self)


Number.__copy__ = Number.__deepcopy__ = _plain
Number.__reduce_ex__ = lambda self, protocol: (float, (_plain(self),))
for _name in (
    "__floordiv__ __rfloordiv__ __mod__ __rmod__ __divmod__ __rdivmod__ __int__ __trunc__ "
    "__floor__ __ceil__ __round__ __float__ __hash__ __str__ __repr__ __format__ "
    "as_integer_ratio hex is_integer conjugate"
).split():
    if hasattr(float, _name):
        setattr(Number, _name, _loses(_name))


class Spent:
    """Takes the place of a Tape for floats that a scheduler has set: using them loses the tape."""

    def __init__(self, tape):
        self._tape = tape

    def calculate(self, function, *operands):
        self.is_lost = True
        return function(*[plain_of(one) for one in operands])

    compare = calculate

    @property
    def is_lost(self):
        return self._tape.is_lost

    @is_lost.setter
    def is_lost(self, lost):
        self._tape.is_lost |= lost


def plain_of(thing):
    """Returns a Number as a plain float, and another thing as it is."""
    return float.__float__(thing) if type(thing) is Number else thing
