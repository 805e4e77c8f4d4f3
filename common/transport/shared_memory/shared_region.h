// The memory and the file descriptors of one shared-memory connection, and how
// the worker hands them to a client over a Unix socket.
//
// The worker makes an anonymous file of fixed size, sealed so that nobody can
// shrink it under the other's feet, and sends it with a greeting right after it
// accepted the socket. From then on a byte on the socket, or a word in the
// memory, wakes a sleeping peer, and the socket's end says that its process is
// gone.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_SHARED_REGION_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_SHARED_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/transport/shared_memory/frame_ring.h"

namespace djinn {

// A file descriptor; closed by the destructor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

enum class SharedSide { kClient = 0, kWorker = 1 };

enum SharedSleep : uint32_t {
  kAwake = 0,
  // A byte on the socket wakes it.
  kAsleepAtSocket = 1,
  // WakeAtWord() does.
  kAsleepAtWord = 2,
};

// Sizes in bytes, multiples of the page size.
struct RingSizes {
  uint32_t control = 256 << 10;
  uint32_t bulk = 4 << 20;
};

// The mapping. Not inherited by forked children.
class SharedRegion {
 public:
  // One ring, as either side uses it.
  struct Ring {
    RingState* state;
    char* data;
    size_t bytes;
  };

  SharedRegion() = default;
  SharedRegion(SharedRegion&& other) noexcept { *this = std::move(other); }
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  // What `writer` sends.
  Ring control(SharedSide writer) const;
  Ring bulk(SharedSide writer) const;
  // How the side sleeps, a SharedSleep; whoever has news for it sets it to
  // kAwake and wakes it where it is.
  std::atomic<uint32_t>* sleep(SharedSide side) const;

 private:
  friend struct SharedConnection;
  struct Head;

  static absl::StatusOr<SharedRegion> Map(int fd, const RingSizes& sizes);

  Head* head() const;
  Ring RingAt(size_t index, size_t offset, size_t bytes) const;

  char* base_ = nullptr;
  size_t bytes_ = 0;
  RingSizes sizes_;
};

// All of a connection.
struct SharedConnection {
  Descriptor socket;
  SharedRegion region;
  // Wakes this side's own thread.
  Descriptor wake;
  // Given back with the connection: the server counts them.
  std::shared_ptr<const void> permit;

  // The worker's end on an accepted socket; greets the client with the worker's
  // incarnation.
  static absl::StatusOr<SharedConnection> Offer(Descriptor socket,
                                                const RingSizes& sizes,
                                                uint64_t incarnation);
  // The client's end, which `wake` wakes: waits for the greeting until
  // `timeout`, or until it is woken (Cancelled). FailedPrecondition
  // (SHARED_MEMORY_REFUSED): not that incarnation of a worker, or not of this
  // version. Unavailable: it went away.
  static absl::StatusOr<SharedConnection> Accept(Descriptor socket,
                                                 uint64_t incarnation, int wake,
                                                 absl::Duration timeout);
};

// A listening Unix socket that only this user may reach. A stale one at `path`
// is replaced.
absl::StatusOr<Descriptor> ListenForSharedMemory(const std::string& path);
// Does not wait. NotFound: nobody listens there that this process sees.
// PermissionDenied: another user's. Unavailable: for now.
absl::StatusOr<Descriptor> DialSharedMemory(const std::string& path);
// OK when the process at the other end runs as this user.
absl::Status CheckSameUser(int socket);

// Waits while the word is `value`, or until `patience` has passed or it is
// woken; the word may be shared with another process. May also wake early.
void WaitAtWord(std::atomic<uint32_t>* word, uint32_t value,
                absl::Duration patience);
void WakeAtWord(std::atomic<uint32_t>* word);

// For waking a thread that polls; readable after RaiseEvent().
absl::StatusOr<Descriptor> MakeEvent();
void RaiseEvent(int fd);
void ClearEvent(int fd);

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_SHARED_REGION_H_
