#include "client_lib/capture/device/process_session.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"

namespace djinn::capture {
namespace {

// Never destroyed, because kernels may run during exit.
struct State {
  // Serialises opening the default session, which talks to the coordinator.
  Mutex opening;
  Mutex mu;
  SessionFactory factory ABSL_GUARDED_BY(mu);
  std::shared_ptr<Session> session ABSL_GUARDED_BY(mu);
};

State& GlobalState() {
  static State* const state = new State;
  return *state;
}

absl::StatusOr<std::shared_ptr<Session>> OpenDefault() {
  State& state = GlobalState();
  MutexLock opening(&state.opening);
  SessionFactory factory;
  {
    MutexLock lock(&state.mu);
    if (state.session != nullptr) return state.session;
    factory = state.factory;
  }
  if (factory == nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NO_SESSION",
                     "no Djinn session is open: call djinn::Connect() "
                     "(djinn.connect() or djinn.local() in Python)");
  }
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, factory());
  DJINN_RETURN_IF_ERROR(SetSession(session));
  return session;
}

}  // namespace

void SetDefaultSessionFactory(SessionFactory factory) {
  State& state = GlobalState();
  MutexLock lock(&state.mu);
  state.factory = std::move(factory);
}

absl::Status SetSession(std::shared_ptr<Session> session) {
  State& state = GlobalState();
  MutexLock lock(&state.mu);
  if (state.session != nullptr) {
    return MakeError(absl::StatusCode::kAlreadyExists, "SESSION_OPEN",
                     "this process has an open Djinn session: close it first");
  }
  state.session = std::move(session);
  return absl::OkStatus();
}

std::shared_ptr<Session> CurrentSession() {
  State& state = GlobalState();
  MutexLock lock(&state.mu);
  return state.session;
}

std::shared_ptr<Session> TakeSession() {
  State& state = GlobalState();
  MutexLock lock(&state.mu);
  return std::exchange(state.session, nullptr);
}

absl::StatusOr<std::shared_ptr<VirtualDevice>> DeviceOfProcess(int index) {
  // This check comes first, because a lock may be held for ever in a forked
  // child.
  if (IsForkedChild()) return AfterForkError();
  std::shared_ptr<Session> session = CurrentSession();
  if (session == nullptr) {
    DJINN_ASSIGN_OR_RETURN(session, OpenDefault());
  }
  return session->Device(index);
}

int DeviceCount() {
  static const int count = [] {
    constexpr int kDefault = 16;
    constexpr int kMost = static_cast<int>(kMaxVirtualDevices);
    const char* text = std::getenv("DJINN_DEVICE_COUNT");
    if (text == nullptr) return kDefault;
    int value = kDefault;
    const bool is_number = absl::SimpleAtoi(text, &value);
    const int used = is_number ? std::clamp(value, 1, kMost) : kDefault;
    if (!is_number || used != value) {
      log::Warning("DJINN_DEVICE_COUNT is not a number between 1 and the limit",
                   {{"value", text}, {"limit", kMost}, {"used", used}});
    }
    return used;
  }();
  return count;
}

}  // namespace djinn::capture
