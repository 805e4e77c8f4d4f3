# find_package(djinn) makes the target djinn::client, which brings Abseil and libtorch along.
#
# libtorch is that of the target `torch` if find_package(Torch) came first; else that of
# djinn_TORCH_DIR, a folder with include/ and lib/; else the one beside the library.
include(CMakeFindDependencyMacro)
find_dependency(absl CONFIG)

get_filename_component(_djinn_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(djinn_TORCH_DIR "${_djinn_prefix}/lib/djinn/torch" CACHE PATH "libtorch 2.11 for djinn::client")

if(NOT TARGET djinn::torch)
  add_library(djinn::torch INTERFACE IMPORTED)
  if(TARGET torch)
    set_target_properties(djinn::torch PROPERTIES INTERFACE_LINK_LIBRARIES torch)
  elseif(EXISTS "${djinn_TORCH_DIR}/include/torch/csrc/api/include/torch/torch.h")
    set_target_properties(djinn::torch PROPERTIES
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
        "${djinn_TORCH_DIR}/include;${djinn_TORCH_DIR}/include/torch/csrc/api/include"
      INTERFACE_INCLUDE_DIRECTORIES
        "${djinn_TORCH_DIR}/include;${djinn_TORCH_DIR}/include/torch/csrc/api/include"
      INTERFACE_LINK_LIBRARIES
        "${djinn_TORCH_DIR}/lib/libtorch_cpu.so;${djinn_TORCH_DIR}/lib/libc10.so"
      INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${djinn_TORCH_DIR}/../nvidia/cu13/lib")
  else()
    set(djinn_FOUND FALSE)
    set(djinn_NOT_FOUND_MESSAGE
      "${djinn_TORCH_DIR} has no libtorch: call find_package(Torch) first, or set djinn_TORCH_DIR")
    return()
  endif()
endif()

if(NOT TARGET djinn::client)
  add_library(djinn::client SHARED IMPORTED)
  set_target_properties(djinn::client PROPERTIES
    IMPORTED_LOCATION "${_djinn_prefix}/lib/djinn/libdjinn_client.so"
    IMPORTED_SONAME libdjinn_client.so
    INTERFACE_INCLUDE_DIRECTORIES "${_djinn_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_LINK_LIBRARIES "djinn::torch;absl::status;absl::statusor;absl::strings;absl::time"
    # Keeps the library for programs that use the device by its name alone.
    INTERFACE_LINK_OPTIONS LINKER:--no-as-needed)
endif()
