"""Refuses functions that ask the process, the machine or a clock: their answers are not watched."""

import builtins
import codecs
import decimal
import faulthandler
import gc
import inspect
import io
import os
import random
import secrets
import sys
import threading
import time
import traceback
import types
import uuid
import weakref

import torch

from djinn import _device_module, _session
from djinn._stable import is_stable_class, is_stable_function


class Unwatchable(Exception):
    """The function refers to something whose changes would not be noticed."""


_numpy = sys.modules.get("numpy")
_OF_MEMORY = (
    "max_memory_allocated max_memory_reserved memory_allocated memory_reserved memory_stats "
    "reset_accumulated_memory_stats reset_peak_memory_stats "
)
_NAMES = {
    builtins: "id input open",
    codecs: "open",
    decimal: "Decimal getcontext localcontext",
    faulthandler: "is_enabled",
    gc: (
        "collect get_count get_debug get_freeze_count get_objects get_referents get_referrers "
        "get_stats get_threshold is_finalized is_tracked isenabled"
    ),
    inspect: "findsource getcomments getsource getsourcelines trace",
    io: "FileIO open_code",
    os: (
        "access confstr cpu_count ctermid eventfd_read fdopen fpathconf fstat fstatvfs fwalk "
        "get_blocking get_exec_path get_inheritable get_terminal_size getcwd getcwdb getegid "
        "geteuid getgid getgrouplist getgroups getloadavg getlogin getpgid getpgrp getpid getppid "
        "getpriority getrandom getresgid getresuid getsid getuid getxattr isatty listdir "
        "listxattr lseek lstat open pathconf popen pread preadv read readlink readv scandir "
        "sched_getaffinity sched_getparam sched_getscheduler stat statvfs sysconf system "
        "tcgetpgrp times ttyname umask uname urandom wait wait3 wait4 waitid waitpid walk"
    ),
    os.path: (
        "abspath exists expanduser getatime getctime getmtime getsize isdir isfile islink ismount "
        "lexists realpath relpath samefile sameopenfile"
    ),
    random: "Random SystemRandom getstate",
    secrets: "randbelow token_bytes token_hex token_urlsafe",
    sys: (
        "_current_exceptions _current_frames call_tracing exc_info exception get_asyncgen_hooks "
        "get_coroutine_origin_tracking_depth get_int_max_str_digits getallocatedblocks "
        "getdlopenflags getprofile getrecursionlimit getrefcount getsizeof getswitchinterval "
        "gettrace is_finalizing"
    ),
    threading: (
        "active_count current_thread enumerate excepthook get_ident get_native_id getprofile "
        "gettrace main_thread stack_size"
    ),
    time: (
        "asctime clock_gettime clock_gettime_ns ctime gmtime localtime monotonic monotonic_ns "
        "perf_counter perf_counter_ns process_time process_time_ns strftime thread_time "
        "thread_time_ns time time_ns"
    ),
    torch: (
        "from_file get_num_interop_threads get_printoptions get_rng_state initial_seed load seed "
        "set_rng_state"
    ),
    torch.accelerator: _OF_MEMORY + "get_memory_info",
    _device_module: (
        _OF_MEMORY + "get_device_properties get_rng_state get_rng_state_all mem_get_info seed_all "
        "set_rng_state set_rng_state_all"
    ),
    _session: "is_connected root_errors statistics synchronous_calls where_is",
    torch.jit: "load",
    torch._tensor_str: "PRINT_OPTS",
    torch.utils.data: "get_worker_info",
    traceback: "extract_stack format_exc format_stack walk_stack",
    uuid: "getnode uuid1 uuid4",
    weakref: "getweakrefcount getweakrefs",
    _numpy: (
        "DataSource fromfile fromregex genfromtxt get_printoptions getbufsize geterr geterrcall "
        "load loadtxt memmap"
    ),
    _numpy and _numpy.random: "RandomState SeedSequence default_rng get_state",
}
# The names of these functions and classes, by id.
_UNWATCHED = {
    id(vars(module)[name]): f"{module.__name__}.{name}"
    for module, names in _NAMES.items()
    if module is not None
    for name in names.split()
    if name in vars(module)
}
# Packages that read files, communicate with other processes, query the machine, or find things by
# names in data.
_PACKAGES = frozenset(
    "asyncio bz2 configparser ctypes dbm fcntl fileinput ftplib getpass gettext glob grp gzip "
    "imaplib linecache locale lzma mailbox mmap multiprocessing netrc nntplib nt pathlib pipes "
    "pickle pkgutil poplib pty pwd pydoc readline resource runpy select selectors shelve "
    "shutil signal smtplib socket socketserver spwd sqlite3 ssl subprocess tarfile telnetlib "
    "tempfile termios timeit tracemalloc tty wave webbrowser xmlrpc zipapp zipfile zipimport".split()
)
_MODULES = ("http.client", "http.server", "importlib.metadata", "importlib.resources")
_MODULES += ("torch.hub", "urllib.request", "urllib.robotparser", "xml.etree.ElementTree")
_FUNCTIONS_AND_CLASSES = (types.FunctionType, types.BuiltinFunctionType, type)
_HARMLESS = ("PurePath", "PurePosixPath", "PureWindowsPath")


def check_is_watchable(thing):
    """Raises Unwatchable if a thing is a library's function or class that asks outside."""
    what = _UNWATCHED.get(id(thing))
    if what is None:
        if not isinstance(thing, _FUNCTIONS_AND_CLASSES):
            return
        module = getattr(thing, "__module__", None)
        if not isinstance(module, str) or not _is_outside(module, thing):
            return
        what = f"{module}.{thing.__name__}"
    raise Unwatchable(f"it uses {what}, whose results are not watched")


def _is_outside(module, thing):
    package = module.partition(".")[0].removeprefix("_")
    if thing.__name__ == "safe_open" and package == "builtins":
        return True  # This is safetensors' function.
    if package not in _PACKAGES and not module.startswith(_MODULES):
        return False
    if isinstance(thing, type):
        # The program may have a class in a module with such a name.
        is_theirs = is_stable_class(thing) and not issubclass(thing, BaseException)
        return is_theirs and thing.__name__ not in _HARMLESS
    return not isinstance(thing, types.FunctionType) or is_stable_function(thing)
