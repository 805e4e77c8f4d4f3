#include "gpu_worker/service/shared_memory_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/status_macros.h"

namespace djinn::worker {
namespace {

// After accept() failed: descriptors may have run out.
constexpr int kPauseMilliseconds = 100;

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryServer>> SharedMemoryServer::Start(
    Options options) {
  DJINN_ASSIGN_OR_RETURN(Descriptor listener,
                         ListenForSharedMemory(options.path));
  DJINN_ASSIGN_OR_RETURN(Descriptor stop, MakeEvent());
  auto server = absl::WrapUnique(new SharedMemoryServer(
      std::move(options), std::move(listener), std::move(stop)));
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

SharedMemoryServer::~SharedMemoryServer() {
  RaiseEvent(stop_.get());
  // The socket's file stays: another worker may have taken its place.
  thread_.join();
}

void SharedMemoryServer::Run() {
  const auto interval = static_cast<int>(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(options_.tick_interval)));
  for (;;) {
    pollfd waiting[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    const int ready =
        poll(waiting, 2, options_.tick == nullptr ? -1 : interval);
    if (waiting[1].revents != 0) return;
    if (ready == 0) options_.tick();
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
    return MakeError(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_CONNECTIONS",
        absl::StrCat("at most ", kMaxConnections, " over shared memory"));
  }
  DJINN_ASSIGN_OR_RETURN(
      SharedConnection connection,
      SharedConnection::Offer(std::move(socket), options_.ring_sizes,
                              options_.incarnation));
  connection.permit = permits_;
  options_.serve(std::move(connection));
  return absl::OkStatus();
}

}  // namespace djinn::worker
