# Installs the built archive: libdjinn_client.so, PyTorch's CPU half and the programs.
vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
vcpkg_download_distfile(archive
  URLS "@URL@"
  FILENAME "@ARCHIVE@"
  SHA512 @SHA512@)
vcpkg_extract_source_archive(source ARCHIVE "${archive}")

# What is built has no debug half, and its CMake files find the prefix from lib/cmake.
set(VCPKG_BUILD_TYPE release)
set(VCPKG_POLICY_MISMATCHED_NUMBER_OF_BINARIES enabled)
set(VCPKG_POLICY_SKIP_MISPLACED_CMAKE_FILES_CHECK enabled)
set(VCPKG_POLICY_SKIP_LIB_CMAKE_MERGE_CHECK enabled)

file(INSTALL "${source}/include" DESTINATION "${CURRENT_PACKAGES_DIR}")
file(INSTALL "${source}/lib/djinn" "${source}/lib/cmake" DESTINATION "${CURRENT_PACKAGES_DIR}/lib"
  USE_SOURCE_PERMISSIONS)
file(GLOB licences "${source}/share/doc/*/copyright")
vcpkg_install_copyright(FILE_LIST ${licences})
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
