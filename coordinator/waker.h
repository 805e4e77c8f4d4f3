// How the cluster tells a stream that there may be something to send.
#ifndef COORDINATOR_WAKER_H_
#define COORDINATOR_WAKER_H_

#include <memory>
#include <utility>
#include <vector>

namespace djinn::coordinator {

// Implemented by whoever owns a stream: it then asks the cluster for its next
// message. One call may stand for many changes, and for none.
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

#endif  // COORDINATOR_WAKER_H_
