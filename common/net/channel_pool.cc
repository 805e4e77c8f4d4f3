#include "common/net/channel_pool.h"

#include <atomic>
#include <iterator>
#include <list>
#include <utility>

#include "absl/algorithm/container.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace djinn {

struct ChannelPool::Entry {
  std::string address;
  ChannelOptions options;
  std::shared_ptr<grpc::Channel> channel;
  // Greater than that of all channels made before.
  uint64_t ordinal = 0;
  int users = 0;
  bool trusted = true;
  absl::Duration idle_since;  // since the last user left

  bool Serves(const std::string& wanted, const ChannelOptions& by) const {
    return address == wanted && options.connection == by.connection &&
           options.silence == by.silence &&
           options.security.IsSameAs(by.security);
  }
  // Returns whether the channel is connected. Also notes a failed channel,
  // which must not be trusted any more.
  bool Connected() {
    const grpc_connectivity_state state = channel->GetState(false);
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE ||
        state == GRPC_CHANNEL_SHUTDOWN) {
      trusted = false;
    }
    return trusted && state == GRPC_CHANNEL_READY;
  }
};

struct ChannelPool::State {
  using Entries = std::list<Entry>;

  State(const Options& options, Clock* clock)
      : options(options), clock(clock) {}

  void Leave(Entries::iterator entry) ABSL_LOCKS_EXCLUDED(mu);
  // Closes channels that have waited for too long, or are too many at this
  // address or in total.
  void CloseIdle(const std::string& address, Entries* gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Moves the entry to `gone`, so that it closes after the lock is released.
  void Remove(Entries::iterator entry, Entries* gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const Options options;
  Clock* const clock;
  std::atomic<uint64_t> created{0};
  std::atomic<uint64_t> reused{0};
  std::atomic<uint64_t> closed{0};
  std::atomic<uint64_t> failed{0};

  Mutex mu;
  uint64_t last_ordinal ABSL_GUARDED_BY(mu) = 0;
  // Channels without users are ordered by when they lost their last user.
  Entries entries ABSL_GUARDED_BY(mu);
};

// One user's hold on a channel.
class ChannelPool::Use {
 public:
  Use(std::shared_ptr<State> state, State::Entries::iterator entry)
      : state_(std::move(state)), entry_(entry) {}
  ~Use() { state_->Leave(entry_); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  const std::shared_ptr<State> state_;
  const State::Entries::iterator entry_;
};

void ChannelPool::State::Remove(Entries::iterator entry, Entries* gone) {
  ++(entry->trusted ? closed : failed);
  gone->splice(gone->end(), entries, entry);
}

void ChannelPool::State::CloseIdle(const std::string& address, Entries* gone) {
  const absl::Duration now = clock->Monotonic();
  size_t idle = 0;
  size_t idle_there = 0;
  for (auto next = entries.end(); next != entries.begin();) {
    const auto entry = --next;
    if (entry->users > 0) continue;
    const bool there = entry->address == address;
    if (now - entry->idle_since < kIdleTimeout && idle < options.max_idle &&
        !(there && idle_there == options.max_idle_per_address)) {
      ++idle;
      idle_there += there;
      continue;
    }
    ++next;
    Remove(entry, gone);
  }
}

void ChannelPool::State::Leave(Entries::iterator entry) {
  Entries gone;
  MutexLock lock(&mu);
  if (--entry->users > 0) return;
  if (!entry->Connected()) {
    Remove(entry, &gone);
    return;
  }
  entry->idle_since = clock->Monotonic();
  entries.splice(entries.end(), entries, entry);
  CloseIdle(entry->address, &gone);
}

ChannelPool::ChannelPool(const Options& options, Clock* clock)
    : state_(std::make_shared<State>(options, clock)) {}

ChannelPool::~ChannelPool() = default;

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelPool::Take(
    const std::string& address, const ChannelOptions& options) {
  State::Entries gone;
  MutexLock lock(&state_->mu);
  State::Entries& entries = state_->entries;
  state_->CloseIdle(address, &gone);
  auto found = entries.end();
  for (auto next = entries.begin(); next != entries.end();) {
    const auto entry = next++;
    if (!entry->Serves(address, options)) continue;
    if (!entry->Connected() && entry->users == 0) {
      state_->Remove(entry, &gone);
    } else if (entry->trusted && entry->users < state_->options.max_users) {
      found = entry;
    }
  }
  if (found == entries.end()) {
    Entry made{address, options};
    DJINN_ASSIGN_OR_RETURN(made.channel, MakeChannel(address, options));
    made.ordinal = ++state_->last_ordinal;
    found = entries.insert(entries.end(), std::move(made));
    ++state_->created;
  } else {
    ++state_->reused;
  }
  ++found->users;
  return std::shared_ptr<grpc::Channel>(std::make_shared<Use>(state_, found),
                                        found->channel.get());
}

void ChannelPool::Distrust(const grpc::Channel& channel) {
  State::Entries gone;
  MutexLock lock(&state_->mu);
  State::Entries& entries = state_->entries;
  const auto broken = absl::c_find_if(entries, [&](const Entry& entry) {
    return entry.channel.get() == &channel;
  });
  for (auto next = entries.begin(); next != entries.end();) {
    const auto entry = next++;
    if (entry->address != broken->address || entry->ordinal > broken->ordinal) {
      continue;
    }
    entry->trusted = false;
    // The broken channel has a user, so it is not removed here.
    if (entry->users == 0) state_->Remove(entry, &gone);
  }
}

ChannelPool::Counts ChannelPool::counts() const {
  return {state_->created, state_->reused, state_->closed, state_->failed};
}

}  // namespace djinn
