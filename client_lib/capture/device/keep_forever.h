// Keeps registrations for the life of the process, where leak checkers see that
// somebody does: the dispatcher outlives static destructors.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_KEEP_FOREVER_H_
#define CLIENT_LIB_CAPTURE_DEVICE_KEEP_FOREVER_H_

#include <memory>
#include <utility>
#include <vector>

namespace djinn::capture {

// While something else makes sure that no two threads do this at once, such as
// the initialisation of a static.
template <typename T>
T& KeepForever(std::unique_ptr<T> object) {
  static auto* const kept = new std::vector<std::unique_ptr<T>>;
  return *kept->emplace_back(std::move(object));
}

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_KEEP_FOREVER_H_
