"""The cost of protection: walls between tenants, and recovery from lost workers.

Each row sets one kind of protection beside the same program without it. The columns "Djinn"
and "local" hold the protected and the unprotected program.
"""

from tests.bench.python.sides import Setting, Turn, compare

# The shortest call is a turn's figure.
_TURN = Turn(calls=8, figure="shortest")

# Name, with protection, without it.
_PAIRS = (
    ("walls", Setting(worker_extra="isolation: {mode: process}\n"),
     Setting(worker_extra="isolation: {mode: shared}\n")),
    ("replay", Setting(options={"recovery": "replay"}), Setting(options={"recovery": "off"})),
    ("checkpoint", Setting(options={"recovery": "checkpoint"}),
     Setting(options={"recovery": "off"})),
)


def measure(device, local_device, rounds):
    if local_device != "cpu":
        raise NotImplementedError("the workers of this benchmark have CPUs")
    rows = []
    for pair, *settings in _PAIRS:
        rows += compare("python_protection", pair, settings, _TURN, rounds)
    return rows
