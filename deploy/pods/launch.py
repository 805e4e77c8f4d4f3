"""Starts one process of a container. Stands alone: it runs by path, as root.

usage: launch.py SPECIFICATION

The specification, a JSON file, has `root` (an unpacked image), `mounts` (pairs of a folder
or file and its place, with "ro" or "rw"), `user`, `environment`, `command` and `enter`:
whether the mounts are there already. The process has no capability, cannot gain
privileges, and sees a read-only root, as the standard `restricted` demands.
"""

import ctypes
import json
import os
import subprocess
import sys

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38


def _mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def _mounts(given):
    root = given["root"]
    _mount("--bind", root, root)
    for source, place, mode in given["mounts"]:
        _mount("--bind", source, root + place)
        if mode == "ro":
            _mount("-o", "remount,bind,ro", root + place)
    _mount("-t", "proc", "proc", root + "/proc")
    for name in ("null", "zero", "urandom", "random"):
        _mount("--bind", "/dev/" + name, f"{root}/dev/{name}")
    _mount("-o", "remount,bind,ro", root)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    if not given["enter"]:
        _mounts(given)
    os.chroot(given["root"])
    os.chdir("/")
    for capability in range(64):
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    user = given["user"]
    os.setgroups([user])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        sys.exit("no_new_privs")
    program = given["command"][0]
    os.execve(program, given["command"], given["environment"])


main()
