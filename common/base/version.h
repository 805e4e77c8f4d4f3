// Defines the version of this tree. deploy/python/build_wheel.py has the same
// one.
#ifndef COMMON_BASE_VERSION_H_
#define COMMON_BASE_VERSION_H_

namespace djinn {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace djinn

#endif  // COMMON_BASE_VERSION_H_
