// The headers that most of our sources include. `./djinn setup` parses them once
// (GCC's precompiled headers) instead of in each of a thousand compilations, where it
// is a quarter of the time. No source includes this file: `./djinn` has the
// result put before each in the ordinary build, and only there, so a source
// still includes what it uses: sanitizers, release builds and `./djinn check
// clang` see when it does not.
//
// Only headers that are cheap to have read: GCC instantiates at the end of every
// source what their inline functions need, used or not. PyTorch's headers take three
// seconds so, and save ten where a source needs them: torch.h has them, for targets
// that depend on @torch.
#ifndef DJINN_PRECOMPILED_LIBRARY
#define DJINN_PRECOMPILED_LIBRARY
// GCC takes a precompiled header only if this is defined as it was when it was made.
#ifdef DJINN_USES_TORCH
#define DJINN_PRECOMPILED_TORCH
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/container/node_hash_map.h"
#include "absl/flags/flag.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "google/protobuf/extension_set.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "google/protobuf/generated_message_util.h"
#include "google/protobuf/map.h"
#include "google/protobuf/map_entry.h"
#include "google/protobuf/map_field_inl.h"
#include "google/protobuf/message.h"
#include "google/protobuf/repeated_field.h"
#include "google/protobuf/unknown_field_set.h"

#endif  // DJINN_PRECOMPILED_LIBRARY
