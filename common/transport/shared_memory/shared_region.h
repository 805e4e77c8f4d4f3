// Manages the memory and file descriptors of one shared-memory connection, and
// their transfer from the worker to a client over a Unix socket.
//
// The worker makes an anonymous file of fixed size, sealed so that neither side
// can shrink it while the other one uses it. It sends the file with a greeting
// right after it accepted the socket. From then on, a byte on the socket or a
// word in the memory wakes a sleeping peer, and the end of the socket shows
// that the peer's process is gone.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_SHARED_REGION_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_SHARED_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/transport/shared_memory/frame_ring.h"

namespace djinn {

// A file descriptor, which the destructor closes.
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
  // A byte on the socket wakes the side.
  kAsleepAtSocket = 1,
  // WakeAtWord() wakes the side.
  kAsleepAtWord = 2,
};

// Sizes in bytes, multiples of the page size.
struct RingSizes {
  uint32_t control = 256 << 10;
  uint32_t bulk = 4 << 20;
};

// The mapping. Forked children do not inherit it.
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

  // Return the rings that `writer` writes.
  Ring control(SharedSide writer) const;
  Ring bulk(SharedSide writer) const;
  // Returns how the side sleeps, a SharedSleep. A peer that has data for it
  // sets this to kAwake and wakes it accordingly.
  std::atomic<uint32_t>* sleep(SharedSide side) const;

 private:
  friend struct SharedConnection;
  friend class RegionPool;
  struct Head;

  static absl::StatusOr<SharedRegion> Map(int fd, const RingSizes& sizes);
  // Zeroes the region by giving its memory back to the system.
  absl::Status Clear();

  Head* head() const;
  Ring RingAt(size_t index, size_t offset, size_t bytes) const;

  char* base_ = nullptr;
  size_t bytes_ = 0;
  RingSizes sizes_;
};

// Everything that one connection needs.
struct SharedConnection {
  Descriptor socket;
  SharedRegion region;
  // Event that wakes this side's own thread.
  Descriptor wake;
  // Counts the connection in the server until it is destroyed.
  std::shared_ptr<const void> permit;

  // Makes the worker's end on an accepted socket, and greets the client with
  // the worker's incarnation.
  static absl::StatusOr<SharedConnection> Offer(Descriptor socket,
                                                const RingSizes& sizes,
                                                uint64_t incarnation);
  // Makes the client's end. Waits for the greeting until `timeout`, or until
  // `wake` is readable (Cancelled). Returns FailedPrecondition
  // (SHARED_MEMORY_REFUSED) if the worker has another incarnation or version,
  // and Unavailable if the worker went away.
  static absl::StatusOr<SharedConnection> Accept(Descriptor socket,
                                                 uint64_t incarnation, int wake,
                                                 absl::Duration timeout);

 private:
  friend class RegionPool;

  static absl::StatusOr<SharedConnection> OfferFile(Descriptor socket, int file,
                                                    const RingSizes& sizes,
                                                    uint64_t incarnation);
};

// Regions that a worker makes in advance, because later its sandbox lets it
// make none. A pool lends each region to one connection after the other.
//
// A region is free again when the worker's end of its connection was destroyed
// and the client has closed its socket: a client unmaps the region before it
// does.
//
// Not thread-safe. Connections may end in any thread, and may outlive the pool.
class RegionPool {
 public:
  static absl::StatusOr<std::unique_ptr<RegionPool>> Make(
      const RingSizes& sizes, size_t count);

  // As SharedConnection::Offer(), but sets the connection's permit, too.
  // Returns ResourceExhausted (TOO_MANY_CONNECTIONS) when no region is free.
  absl::StatusOr<SharedConnection> Offer(Descriptor socket,
                                         uint64_t incarnation);

 private:
  struct Region {
    Descriptor file;
    // A copy of the last connection's socket; null before the first one.
    std::shared_ptr<const Descriptor> socket;
    // The permit of the last connection.
    std::weak_ptr<const void> permit;
  };

  explicit RegionPool(const RingSizes& sizes) : sizes_(sizes) {}

  static bool IsFree(const Region& region);

  const RingSizes sizes_;
  std::vector<Region> regions_;
};

// Returns a listening Unix socket that only this user may reach. Replaces a
// stale one at `path`.
absl::StatusOr<Descriptor> ListenForSharedMemory(const std::string& path);
// Connects without waiting. NotFound: no process that this one can see listens
// there. PermissionDenied: the socket is another user's. Unavailable: not at
// this moment.
absl::StatusOr<Descriptor> DialSharedMemory(const std::string& path);
// Returns OK when the process at the other end runs as this user.
absl::Status CheckSameUser(int socket);

// Has the system refuse to send descriptors to this Unix socket. Until its
// owner reads them, they count against the descriptors that all processes of
// the user may send. Has no effect before Linux 6.16.
void RefuseDescriptors(int socket);

// Waits while the word is `value`, for at most `patience`, or until it is
// woken. The word may be shared with another process. May return early.
void WaitAtWord(std::atomic<uint32_t>* word, uint32_t value,
                absl::Duration patience);
void WakeAtWord(std::atomic<uint32_t>* word);

// Makes an event that wakes a thread in poll(). It is readable after
// RaiseEvent().
absl::StatusOr<Descriptor> MakeEvent();
void RaiseEvent(int fd);
void ClearEvent(int fd);

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_SHARED_REGION_H_
