"""The part of rules_cc that Bazel itself and this repository load.

Debian's rules_cc is too new for Debian's Bazel. Our BUILD files load from here
as from the real thing, so moving to a newer Bazel only replaces this folder.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library

# buildifier: disable=unused-variable
def cc_flags_supplier(**kwargs):
    pass

# buildifier: disable=unused-variable
def compiler_flag(**kwargs):
    pass
