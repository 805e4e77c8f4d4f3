// Runs a supervisor on a fake clock, with executors that are sockets in the
// test's process.
#ifndef GPU_WORKER_SUPERVISOR_SUPERVISOR_FIXTURE_H_
#define GPU_WORKER_SUPERVISOR_SUPERVISOR_FIXTURE_H_

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/lease/lease_verifier.h"
#include "common/metrics/exposition.h"
#include "gpu_worker/supervisor/metrics/joined_metrics.h"
#include "gpu_worker/supervisor/supervisor.h"
#include "gtest/gtest.h"

namespace djinn::worker {

inline constexpr uint64_t kMemory = 1 << 20;

// The other end of an executor's socket.
class FakeExecutor {
 public:
  explicit FakeExecutor(Descriptor socket) : socket_(std::move(socket)) {}

  // Returns the next message, or nothing if none has arrived.
  std::optional<v1::ToExecutor> Next() {
    v1::ToExecutor message;
    if (!reader_.Take(&message).ok()) {
      (void)reader_.Fill(socket_.get());
      if (!reader_.Take(&message).ok()) return std::nullopt;
    }
    return message;
  }
  // Returns the next orders, after the setup.
  v1::DesiredState Orders() {
    for (;;) {
      const std::optional<v1::ToExecutor> message = Next();
      if (!message.has_value()) return {};
      if (message->has_desired()) return message->desired();
    }
  }
  void Send(const v1::FromExecutor& message) {
    SendBytes(EncodeFrame(message));
  }
  void SendBytes(const std::string& bytes) {
    unsent_ += bytes;
    Flush();
  }
  // Sends the bytes for which the socket had no room.
  void Flush() { (void)WriteSome(socket_.get(), &unsent_); }
  // Sends the bytes, and a copy of the descriptor with them.
  void SendDescriptor(std::string bytes, int descriptor) {
    iovec part = {bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &descriptor, sizeof(descriptor));
    EXPECT_GT(sendmsg(socket_.get(), &message, MSG_NOSIGNAL), 0);
  }
  // Declares two metrics, and is ready.
  void SayReady() {
    Exposition declared;
    declared.Counters("djinn_worker_runs_total",
                      "Runs that the worker executed.", {"tenant"});
    declared.Counters("djinn_worker_unbilled_leases_total", "Ended leases.",
                      {});
    v1::FromExecutor families;
    *families.mutable_metrics() = JoinedMetrics::Encode(declared);
    Send(families);
    v1::FromExecutor message;
    message.mutable_ready()->set_device("fake");
    message.mutable_ready()->mutable_speed()->set_flops_per_second(1e9);
    Send(message);
  }
  void Report(v1::WorkerState state) {
    v1::FromExecutor message;
    *message.mutable_report() = std::move(state);
    Send(message);
  }
  // Returns how many bytes wait for room in the socket.
  size_t unsent() const { return unsent_.size(); }
  void Die() { socket_ = Descriptor(); }

 private:
  Descriptor socket_;
  FrameReader reader_;
  std::string unsent_;
};

class FakeLauncher : public Launcher {
 public:
  absl::StatusOr<ExecutorListeners> Listen(uint64_t number) override {
    if (on_listen != nullptr) std::exchange(on_listen, nullptr)();
    ExecutorListeners made;
    made.address = absl::StrCat("127.0.0.1:", 7000 + number);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    made.listener = Descriptor(ends[1]);
    listening.emplace_back(ends[0]);
    return made;
  }
  absl::StatusOr<LaunchedExecutor> Launch(const ExecutorListeners& listeners,
                                          const Arbiter::Seat& seat) override {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                         ends),
              0);
    executors.push_back(std::make_unique<FakeExecutor>(Descriptor(ends[1])));
    addresses.push_back(listeners.address);
    gates.push_back(
        std::make_unique<SharedTurnGate>(TurnWord::Map(seat.word.get()).value(),
                                         Descriptor(dup(seat.event.get()))));
    words.push_back(TurnWord::Map(seat.word.get()).value());
    int log_ends[2];
    EXPECT_EQ(pipe2(log_ends, O_CLOEXEC | O_NONBLOCK), 0);
    logs.emplace_back(log_ends[1]);
    LaunchedExecutor launched;
    launched.pid = static_cast<pid_t>(executors.size());
    launched.socket = Descriptor(ends[0]);
    launched.log = Descriptor(log_ends[0]);
    return launched;
  }
  void Kill(pid_t pid) override { killed.push_back(pid); }
  std::optional<ProcessEnd> Reap(pid_t /*pid*/) override { return end; }
  std::optional<uint64_t> ThreadsOf(pid_t pid) override { return threads[pid]; }
  // Returns whether the supervisor has the listener open of the executor with
  // this number.
  bool Listens(uint64_t number) {
    char byte;
    return read(listening.at(number - 1).get(), &byte, 1) < 0;
  }

  // Called once, when sockets are made next.
  std::function<void()> on_listen;
  std::vector<std::unique_ptr<FakeExecutor>> executors;
  std::vector<std::string> addresses;
  // The writing ends of the executors' logs.
  std::vector<Descriptor> logs;
  std::vector<std::unique_ptr<SharedTurnGate>> gates;
  // By process id, which is 1 for the first executor.
  std::map<pid_t, uint64_t> threads;
  std::vector<pid_t> killed;
  // How processes end.
  ProcessEnd end = {"signal 11", /*killed=*/false};
  std::vector<TurnWord> words;
  std::vector<Descriptor> listening;
};

inline v1::SignedLease LeaseOf(const std::string& tenant,
                               const std::string& id) {
  v1::LeaseClaims claims;
  claims.set_lease_id(id);
  claims.set_tenant(tenant);
  claims.set_session_id("session-of-" + id);
  v1::SignedLease lease;
  lease.set_claims(claims.SerializeAsString());
  return lease;
}

inline v1::WorkerState Holding(const std::string& tenant, const std::string& id,
                               int seconds, uint64_t applied) {
  v1::WorkerState report;
  report.set_complete(true);
  report.set_applied_revision(applied);
  v1::HeldSession* const held = report.add_sessions();
  *held->mutable_lease() = LeaseOf(tenant, id);
  held->mutable_lease_use()->mutable_device_time()->set_seconds(seconds);
  return report;
}

class SupervisorTest : public testing::Test {
 protected:
  explicit SupervisorTest(const SupervisorOptions& options = Options())
      : supervisor_(options, &launcher_, &arbiter_, &clock_,
                    [this] { ++changes_; }) {
    clock_.Advance(absl::Hours(1));
  }

  static SupervisorOptions Options() {
    SupervisorOptions options;
    options.worker_id = "w0";
    options.incarnation = 7;
    options.memory_bytes = kMemory;
    options.max_executors = 2;
    return options;
  }
  void Step() {
    // The first round starts processes, the second one reads what they say.
    for (int i = 0; i < 3; ++i) {
      for (const auto& executor : launcher_.executors) executor->Flush();
      supervisor_.Step(absl::ZeroDuration());
    }
  }
  void Lease(const std::string& tenant, const std::string& id) {
    Lease(LeaseOf(tenant, id));
  }
  void Lease(const v1::SignedLease& lease) {
    v1::DesiredState desired;
    desired.set_revision(++revision_);
    *desired.add_leases() = lease;
    supervisor_.Apply(desired);
    Step();
  }
  FakeExecutor& executor(size_t index) { return *launcher_.executors[index]; }
  std::map<std::string, std::string> Endpoints() {
    v1::WorkerState state;
    supervisor_.DescribeEndpoints(&state);
    std::map<std::string, std::string> endpoints;
    for (const v1::TenantEndpoint& endpoint : state.tenant_endpoints()) {
      endpoints[endpoint.tenant()] = endpoint.address();
    }
    return endpoints;
  }
  // Returns the reasons of ended leases by lease id.
  std::map<std::string, std::string> Ended() {
    std::map<std::string, std::string> ended;
    const v1::WorkerState state = supervisor_.Snapshot();
    for (const v1::EndedLease& lease : state.ended_leases()) {
      ended[UncheckedClaims(lease.lease()).lease_id()] = lease.reason();
    }
    return ended;
  }

  FakeClock clock_;
  FakeLauncher launcher_;
  Arbiter arbiter_{Clock::Real()};
  int changes_ = 0;
  Supervisor supervisor_;
  uint64_t revision_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_SUPERVISOR_FIXTURE_H_
