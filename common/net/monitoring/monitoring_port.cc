#include "common/net/monitoring/monitoring_port.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn {

absl::StatusOr<std::unique_ptr<MonitoringPort>> MonitoringPort::Open(
    MonitoringOptions options, absl::Duration retry_interval) {
  auto port = absl::WrapUnique(new MonitoringPort);
  absl::StatusOr<std::unique_ptr<MonitoringServer>> server =
      MonitoringServer::Start(options);
  if (server.ok()) {
    MutexLock lock(&port->mu_);
    port->server_ = *std::move(server);
    return port;
  }
  if (ErrorReason(server.status()) != "CANNOT_LISTEN") return server.status();
  log::Error("serving without the monitoring port; trying again",
             {{"error", server.status()}});
  if (options.stand_in) port->StandIn(options);
  port->thread_ = std::thread(
      [raw = port.get(), options = std::move(options), retry_interval] {
        raw->KeepTrying(options, retry_interval);
      });
  return port;
}

MonitoringPort::~MonitoringPort() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void MonitoringPort::StandIn(MonitoringOptions options) {
  options.address = "127.0.0.1:0";
  options.sources.clear();
  absl::StatusOr<std::unique_ptr<MonitoringServer>> server =
      MonitoringServer::Start(std::move(options));
  if (server.ok()) {
    stand_in_ = *std::move(server);
  } else {
    log::Error("no port stands in for the monitoring port",
               {{"error", server.status()}});
  }
}

std::string MonitoringPort::address() const {
  MutexLock lock(&mu_);
  if (server_ != nullptr) return server_->address();
  return stand_in_ == nullptr ? "" : stand_in_->address();
}

void MonitoringPort::KeepTrying(const MonitoringOptions& options,
                                absl::Duration interval) {
  for (;;) {
    {
      MutexLock lock(&mu_);
      const absl::Time until = absl::Now() + interval;
      while (!stopping_ && absl::Now() < until) {
        changed_.WaitWithTimeout(&mu_, until - absl::Now());
      }
      if (stopping_) return;
    }
    absl::StatusOr<std::unique_ptr<MonitoringServer>> server =
        MonitoringServer::Start(options);
    if (!server.ok()) continue;
    log::Info("monitoring on " + (*server)->address());
    MutexLock lock(&mu_);
    server_ = *std::move(server);
    return;
  }
}

}  // namespace djinn
