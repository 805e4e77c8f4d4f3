#include "common/transport/shared_memory/shared_region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kMaxRingBytes = 64 << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The first and only message on the socket.
struct Greeting {
  char magic[8] = {'d', 'j', 'i', 'n', 'n', 's', 'h', 'm'};
  // Grows when the layout of the region or of frames changes.
  uint32_t version = 2;
  uint32_t control_bytes = 0;
  uint32_t bulk_bytes = 0;
  uint32_t zero = 0;
  // Another worker may listen at the same path on another machine.
  uint64_t incarnation = 0;
};

// Room for one descriptor.
union ControlBuffer {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr align;
};

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusCode DialErrorCode(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

absl::Status Refused(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   "SHARED_MEMORY_REFUSED",
                   absl::StrCat("shared memory: ", why));
}

bool IsPossible(uint32_t ring_bytes) {
  return ring_bytes > 0 && ring_bytes <= kMaxRingBytes &&
         ring_bytes % kPage == 0;
}

absl::Status SendGreeting(int socket, const Greeting& greeting, int file) {
  iovec data = {const_cast<Greeting*>(&greeting), sizeof(greeting)};
  ControlBuffer control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(file));
  std::memcpy(CMSG_DATA(header), &file, sizeof(file));
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof(greeting))) {
    return SystemError("cannot greet the client");
  }
  return absl::OkStatus();
}

absl::Status ReceiveGreeting(int socket, Greeting* greeting, Descriptor* file) {
  iovec data = {greeting, sizeof(*greeting)};
  ControlBuffer control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  // Exactly one descriptor: with the padding behind it, the kernel would accept
  // two.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const ssize_t bytes =
      recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (bytes < 0) return SystemError("no greeting");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    *file = Descriptor(fd);
  }
  if (bytes == 0) {
    return absl::UnavailableError("the worker closed the socket");
  }
  if (bytes != sizeof(*greeting) || !file->valid() ||
      std::memcmp(greeting->magic, Greeting().magic, sizeof(greeting->magic)) !=
          0) {
    return Refused("the socket is not a worker's");
  }
  if (greeting->version != Greeting().version) {
    return Refused(absl::StrCat("the worker's version is ", greeting->version,
                                ", this side's ", Greeting().version));
  }
  return absl::OkStatus();
}

// Returns an anonymous file for a region, whose size nobody can change.
absl::StatusOr<Descriptor> MakeFile(const RingSizes& sizes) {
  Descriptor file(memfd_create("djinn", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return SystemError("cannot make shared memory");
  const size_t bytes = kPage + 2 * (size_t{sizes.control} + sizes.bulk);
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return SystemError("cannot size shared memory");
  }
  return file;
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a Unix socket's path has 1 to ",
                     sizeof(address.sun_path) - 1, " characters: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<Descriptor> MakeSocket() {
  Descriptor socket(
      ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return SystemError("cannot make a socket");
  return socket;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

// The first page of the region.
struct SharedRegion::Head {
  // The control and bulk rings of the client, then of the worker.
  RingState rings[4];
  struct Sleeper {
    alignas(64) std::atomic<uint32_t> sleep;  // a SharedSleep
  } sleepers[2];
};

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(sizes_, other.sizes_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

absl::StatusOr<SharedRegion> SharedRegion::Map(int fd, const RingSizes& sizes) {
  static_assert(sizeof(Head) <= kPage);
  SharedRegion region;
  region.sizes_ = sizes;
  region.bytes_ = kPage + 2 * (size_t{sizes.control} + sizes.bulk);
  void* const base =
      mmap(nullptr, region.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return SystemError("cannot map shared memory");
  region.base_ = static_cast<char*>(base);
  madvise(base, region.bytes_, MADV_DONTFORK);
  return region;
}

absl::Status SharedRegion::Clear() {
  return madvise(base_, bytes_, MADV_REMOVE) == 0
             ? absl::OkStatus()
             : SystemError("cannot clear shared memory");
}

SharedRegion::Head* SharedRegion::head() const {
  return reinterpret_cast<Head*>(base_);
}

SharedRegion::Ring SharedRegion::RingAt(size_t index, size_t offset,
                                        size_t bytes) const {
  return {&head()->rings[index], base_ + offset, bytes};
}

SharedRegion::Ring SharedRegion::control(SharedSide writer) const {
  const auto side = static_cast<size_t>(writer);
  return RingAt(2 * side, kPage + side * sizes_.control, sizes_.control);
}

SharedRegion::Ring SharedRegion::bulk(SharedSide writer) const {
  const auto side = static_cast<size_t>(writer);
  return RingAt(2 * side + 1,
                kPage + 2 * size_t{sizes_.control} + side * sizes_.bulk,
                sizes_.bulk);
}

std::atomic<uint32_t>* SharedRegion::sleep(SharedSide side) const {
  return &head()->sleepers[static_cast<size_t>(side)].sleep;
}

absl::StatusOr<SharedConnection> SharedConnection::Offer(Descriptor socket,
                                                         const RingSizes& sizes,
                                                         uint64_t incarnation) {
  DJINN_ASSIGN_OR_RETURN(const Descriptor file, MakeFile(sizes));
  return OfferFile(std::move(socket), file.get(), sizes, incarnation);
}

absl::StatusOr<SharedConnection> SharedConnection::OfferFile(
    Descriptor socket, int file, const RingSizes& sizes, uint64_t incarnation) {
  SharedConnection connection;
  connection.socket = std::move(socket);
  DJINN_ASSIGN_OR_RETURN(connection.wake, MakeEvent());
  DJINN_ASSIGN_OR_RETURN(connection.region, SharedRegion::Map(file, sizes));
  Greeting greeting;
  greeting.control_bytes = sizes.control;
  greeting.bulk_bytes = sizes.bulk;
  greeting.incarnation = incarnation;
  DJINN_RETURN_IF_ERROR(SendGreeting(connection.socket.get(), greeting, file));
  return connection;
}

absl::StatusOr<std::unique_ptr<RegionPool>> RegionPool::Make(
    const RingSizes& sizes, size_t count) {
  auto pool = absl::WrapUnique(new RegionPool(sizes));
  pool->regions_.resize(count);
  for (Region& region : pool->regions_) {
    DJINN_ASSIGN_OR_RETURN(region.file, MakeFile(sizes));
  }
  return pool;
}

absl::StatusOr<SharedConnection> RegionPool::Offer(Descriptor socket,
                                                   uint64_t incarnation) {
  const auto free = std::find_if(regions_.begin(), regions_.end(), IsFree);
  if (free == regions_.end()) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_CONNECTIONS",
        absl::StrCat("all ", regions_.size(), " regions are in use"));
  }
  DJINN_ASSIGN_OR_RETURN(SharedRegion region,
                         SharedRegion::Map(free->file.get(), sizes_));
  DJINN_RETURN_IF_ERROR(region.Clear());
  auto copy = std::make_shared<const Descriptor>(
      fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy->valid()) return SystemError("cannot copy the socket");
  DJINN_ASSIGN_OR_RETURN(
      SharedConnection connection,
      SharedConnection::OfferFile(std::move(socket), free->file.get(), sizes_,
                                  incarnation));
  // The copy keeps the socket open, so the client learns of this side's end by
  // a shutdown.
  connection.permit = std::shared_ptr<const void>(
      copy.get(), [copy](const void*) { shutdown(copy->get(), SHUT_WR); });
  free->socket = std::move(copy);
  free->permit = connection.permit;
  return connection;
}

bool RegionPool::IsFree(const Region& region) {
  if (region.socket == nullptr) return true;
  if (!region.permit.expired()) return false;
  pollfd peer = {region.socket->get(), 0, 0};
  return poll(&peer, 1, 0) == 1 && (peer.revents & POLLHUP) != 0;
}

absl::StatusOr<SharedConnection> SharedConnection::Accept(
    Descriptor socket, uint64_t incarnation, int wake, absl::Duration timeout) {
  pollfd waiting[] = {{socket.get(), POLLIN, 0}, {wake, POLLIN, 0}};
  int ready;
  do {
    ready =
        poll(waiting, 2, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return SystemError("poll");
  if (ready == 0) return absl::UnavailableError("the worker does not answer");
  if (waiting[1].revents != 0) return absl::CancelledError("closed");
  Greeting greeting;
  Descriptor file;
  DJINN_RETURN_IF_ERROR(ReceiveGreeting(socket.get(), &greeting, &file));
  if (greeting.incarnation != incarnation) {
    return Refused("another worker is at this path");
  }
  const RingSizes sizes = {greeting.control_bytes, greeting.bulk_bytes};
  struct stat status;
  if (!IsPossible(sizes.control) || !IsPossible(sizes.bulk) ||
      fstat(file.get(), &status) != 0 ||
      static_cast<uint64_t>(status.st_size) !=
          kPage + 2 * (uint64_t{sizes.control} + sizes.bulk) ||
      (fcntl(file.get(), F_GET_SEALS) & kSeals) != kSeals) {
    return Refused("the worker's memory is not as it says");
  }
  SharedConnection connection;
  connection.socket = std::move(socket);
  DJINN_ASSIGN_OR_RETURN(connection.region,
                         SharedRegion::Map(file.get(), sizes));
  return connection;
}

absl::StatusOr<Descriptor> ListenForSharedMemory(const std::string& path) {
  DJINN_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  DJINN_ASSIGN_OR_RETURN(Descriptor socket, MakeSocket());
  struct stat status;
  if (lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) {
    unlink(path.c_str());
  }
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
           sizeof(address)) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(socket.get(), 64) != 0) {
    return SystemError(absl::StrCat("cannot listen at ", path));
  }
  return socket;
}

absl::StatusOr<Descriptor> DialSharedMemory(const std::string& path) {
  DJINN_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  DJINN_ASSIGN_OR_RETURN(Descriptor socket, MakeSocket());
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    const int error = errno;
    return absl::Status(
        DialErrorCode(error),
        absl::StrCat("cannot connect to ", path, ": ", std::strerror(error)));
  }
  return socket;
}

absl::Status CheckSameUser(int socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return SystemError("cannot tell whose the peer is");
  }
  if (peer.uid == geteuid()) return absl::OkStatus();
  return Refused(absl::StrCat("the peer runs as user ", peer.uid,
                              ", this process as ", geteuid()));
}

void RefuseDescriptors(int socket) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS, which headers lack
  const int off = 0;
  setsockopt(socket, SOL_SOCKET, kPassRights, &off, sizeof(off));
}

void WaitAtWord(std::atomic<uint32_t>* word, uint32_t value,
                absl::Duration patience) {
  timespec timeout = absl::ToTimespec(patience);
  syscall(SYS_futex, word, FUTEX_WAIT, value,
          patience == absl::InfiniteDuration() ? nullptr : &timeout, nullptr,
          0);
}

void WakeAtWord(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

absl::StatusOr<Descriptor> MakeEvent() {
  Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return SystemError("cannot make an event");
  return event;
}

void RaiseEvent(int fd) {
  // Fails only when the event is raised already.
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof(one));
}

void ClearEvent(int fd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t bytes = read(fd, &count, sizeof(count));
}

}  // namespace djinn
