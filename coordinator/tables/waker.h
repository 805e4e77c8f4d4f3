// Wakes streams that may have something to send.
#ifndef COORDINATOR_TABLES_WAKER_H_
#define COORDINATOR_TABLES_WAKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace djinn::coordinator {

// Names a session or worker together with one of its streams. A call with a
// stream that was replaced does nothing or returns Aborted or Unavailable.
struct StreamId {
  std::string owner;
  uint64_t stream = 0;
};

// Implemented by the owner of a stream, which then asks for the stream's next
// message. One call may stand for any number of changes, even none.
class Waker {
 public:
  virtual ~Waker() = default;
  // Called from any thread, without the cluster's lock. Must not block.
  virtual void Wake() = 0;
};

// Collects wakers under a lock and wakes them when it goes out of scope:
// declare it before the lock.
class Wakes {
 public:
  Wakes() = default;
  ~Wakes() {
    for (const auto& waker : wakers_) waker->Wake();
  }
  Wakes(const Wakes&) = delete;
  Wakes& operator=(const Wakes&) = delete;

  void Add(std::shared_ptr<Waker> waker) {
    if (waker != nullptr) wakers_.push_back(std::move(waker));
  }

 private:
  std::vector<std::shared_ptr<Waker>> wakers_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_WAKER_H_
