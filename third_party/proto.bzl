"""Generated C++ for our protos: one target for messages, one for services.

Only what talks gRPC depends on a services target; everything else links
protobuf alone. Both kinds import and include relative to proto/, so that
proto/djinn/v1/types.proto is "djinn/v1/types.proto" in a proto and
"djinn/v1/types.pb.h" in C++.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")

_PROTO_ROOT = "proto"

def _protos_of(label):
    """The label of the .proto files behind a djinn_proto_messages target."""
    label = str(label)
    if ":" not in label:
        label = label + ":" + label.split("/")[-1]
    return label + "_protos"

def _generated(srcs, suffix):
    return [src[:-len(".proto")] + suffix for src in srcs]

def _generate(name, srcs, protos, outs, flags, tools):
    native.genrule(
        name = name,
        srcs = protos,
        outs = outs,
        cmd = "$(execpath @sys//:protoc) -I{root} -I/usr/include {flags} {srcs}".format(
            flags = flags,
            root = _PROTO_ROOT,
            srcs = " ".join(["$(execpath %s)" % src for src in srcs]),
        ),
        message = "Generating C++ from protos",
        tools = ["@sys//:protoc"] + tools,
    )

def djinn_proto_messages(name, srcs, deps = [], visibility = None, **kwargs):
    """A cc_library of the messages and enums in `srcs`; needs protobuf only.

    Args:
      name: the library's name.
      srcs: .proto files of this package.
      deps: djinn_proto_messages targets whose protos `srcs` import.
      visibility: as for cc_library.
      **kwargs: passed to cc_library.
    """
    native.filegroup(
        name = name + "_protos",
        srcs = srcs + [_protos_of(dep) for dep in deps],
        visibility = visibility,
    )
    headers = _generated(srcs, ".pb.h")
    sources = _generated(srcs, ".pb.cc")
    _generate(
        name = name + "_generate",
        srcs = srcs,
        protos = srcs + [":" + name + "_protos"],
        outs = headers + sources,
        flags = "--cpp_out=$(GENDIR)/" + _PROTO_ROOT,
        tools = [],
    )
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        strip_include_prefix = "/" + _PROTO_ROOT,
        visibility = visibility,
        deps = deps + ["@sys//:protobuf"],
        **kwargs
    )

def djinn_proto_services(name, srcs, messages, deps = [], visibility = None, **kwargs):
    """A cc_library of the gRPC stubs and service classes in `srcs`.

    Args:
      name: the library's name.
      srcs: .proto files of this package that declare services.
      messages: the djinn_proto_messages target of the same files.
      deps: further libraries that the generated code needs.
      visibility: as for cc_library.
      **kwargs: passed to cc_library.
    """
    headers = _generated(srcs, ".grpc.pb.h")
    sources = _generated(srcs, ".grpc.pb.cc")
    _generate(
        name = name + "_generate",
        srcs = srcs,
        protos = srcs + [_protos_of(messages)],
        outs = headers + sources,
        flags = "--grpc_out=$(GENDIR)/{root} --plugin=protoc-gen-grpc=$(execpath @sys//:grpc_cpp_plugin)".format(root = _PROTO_ROOT),
        tools = ["@sys//:grpc_cpp_plugin"],
    )
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        strip_include_prefix = "/" + _PROTO_ROOT,
        visibility = visibility,
        deps = deps + [messages, "@sys//:grpc"],
        **kwargs
    )
