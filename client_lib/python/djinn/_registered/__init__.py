"""Captures whole functions, such as training steps, and replays their calls.

`environment` finds everything that a function refers to besides its arguments, and `watch` checks
before each call that nothing of this has changed.
"""
