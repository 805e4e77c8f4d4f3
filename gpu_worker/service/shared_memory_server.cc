#include "gpu_worker/service/shared_memory_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn::worker {
namespace {

// How long the server pauses after accept() failed, as it does when descriptors
// run out.
constexpr int kPauseMilliseconds = 100;
constexpr int kMaxPollMilliseconds = 1 << 30;

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryServer>> SharedMemoryServer::Start(
    Options options) {
  Descriptor listener(options.listener);
  if (!listener.valid()) {
    DJINN_ASSIGN_OR_RETURN(listener, ListenForSharedMemory(options.path));
  }
  DJINN_ASSIGN_OR_RETURN(Descriptor stop, MakeEvent());
  auto server = absl::WrapUnique(new SharedMemoryServer(
      std::move(options), std::move(listener), std::move(stop)));
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

SharedMemoryServer::~SharedMemoryServer() {
  RaiseEvent(stop_.get());
  // Leaves the socket's file: another worker may have taken its place.
  thread_.join();
}

int SharedMemoryServer::TickIfDue() {
  if (options_.tick == nullptr) return -1;
  const absl::Duration now = options_.clock->Monotonic();
  if (now >= next_tick_) {
    options_.tick();
    next_tick_ = now + options_.tick_interval;
  }
  // Returns no earlier than the tick is due, and soon if the tick took longer
  // than the interval.
  const int64_t left =
      absl::ToInt64Milliseconds(next_tick_ - options_.clock->Monotonic());
  return static_cast<int>(std::clamp<int64_t>(left, 0, kMaxPollMilliseconds)) +
         1;
}

void SharedMemoryServer::Run() {
  for (;;) {
    const int patience = TickIfDue();
    pollfd waiting[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(waiting, 2, patience);
    if (waiting[1].revents != 0) return;
    if (waiting[0].revents == 0) continue;
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      log::Warning("cannot accept", {{"error", std::strerror(errno)}});
      poll(&waiting[1], 1, kPauseMilliseconds);
      continue;
    }
    const absl::Status served = Serve(std::move(socket));
    if (!served.ok()) {
      log::Warning("shared-memory peer refused", {{"error", served}});
    }
  }
}

absl::Status SharedMemoryServer::Serve(Descriptor socket) {
  DJINN_RETURN_IF_ERROR(CheckSameUser(socket.get()));
  if (permits_.use_count() > kMaxConnections) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     "TOO_MANY_CONNECTIONS",
                     absl::StrCat("the worker serves at most ", kMaxConnections,
                                  " connections over shared memory"));
  }
  DJINN_ASSIGN_OR_RETURN(
      SharedConnection connection,
      options_.regions != nullptr
          ? options_.regions->Offer(std::move(socket), options_.incarnation)
          : SharedConnection::Offer(std::move(socket), options_.ring_sizes,
                                    options_.incarnation));
  connection.permit =
      std::make_shared<const std::pair<std::shared_ptr<const void>,
                                       std::shared_ptr<const void>>>(
          permits_, std::move(connection.permit));
  options_.serve(std::move(connection));
  return absl::OkStatus();
}

}  // namespace djinn::worker
