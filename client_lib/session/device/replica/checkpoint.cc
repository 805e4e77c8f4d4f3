// Reads values back, so that less must be computed again after a loss.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/checkpoint_steps.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/model/links.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/hash/hash.h"
#include "common/log/log.h"
#include "common/srg/proto_codec.h"

namespace djinn::replica {
namespace {

using Read = CheckpointState::Read;

// Limit on the bytes of values that become anchors in one step, because hashing
// them delays what is to be sent.
constexpr uint64_t kMostTaken = uint64_t{32} << 20;
// Number of reads that are looked at to see whether values arrived.
constexpr size_t kLookedAt = 16;
// Bytes that an anchor takes in memory besides its value.
constexpr uint64_t kOverhead = Lineage::kAnchorBytes + sizeof(KeptMessage);

// Returns the size of the value, or 0 if it cannot be read: its size is not
// known here, or a generator's state does not fit in a message.
uint64_t SizeToRead(const ConnectionState& c, const Lineage::Value& value)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
  if (!value.generator) return value.size_bytes;
  const uint64_t bytes = c.facts.generator_bytes;
  return bytes <= c.limits.inline_bytes() ? bytes : 0;
}

// Returns whether a checkpoint may begin now.
bool MayBegin(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  const ConnectionState& c = r.connection;
  return c.lineage != nullptr && c.welcomed && r.receiver.connected() &&
         c.end.usable() && !c.end.cancelling && !c.recovery.due &&
         c.recovery.last_replayed == 0 && c.recovery.checks.empty() &&
         c.recovery.metadata_checks.empty() && c.migration.current == nullptr &&
         !r.answers.profiler.active();
}

bool IsAskedFor(const State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  const CheckpointState& k = r.connection.checkpoint;
  return k.asked > k.answered && r.queue.popped() >= k.works_before;
}

// Returns the time at which the next checkpoint is due by itself.
absl::Duration DueAt(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  const SessionOptions& options = r.context->options;
  const CheckpointState& k = r.connection.checkpoint;
  return k.ended +
         std::max(options.replay_time, k.took / options.checkpoint_overhead);
}

// Returns whether half of the room that the last checkpoint left is used.
bool IsHalfUsed(uint64_t limit, uint64_t after, uint64_t used) {
  return used > after && used - after > (limit - std::min(limit, after)) / 2;
}

// Returns whether what is kept will soon have no room.
bool IsNearlyFull(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  const Lineage& lineage = *r.connection.lineage;
  const CheckpointState& k = r.connection.checkpoint;
  const SpillFile& spill = *r.context->spill;
  return IsHalfUsed(lineage.budget(), k.bytes_after, lineage.bytes()) ||
         IsHalfUsed(spill.limit(), k.spilled_after, spill.used());
}

// Returns whether the time decides about checkpoints. With "replay", they make
// up for what is not kept.
bool IsTimed(const ConnectionState& c) ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
  return c.checkpoint.enabled || !c.lineage->complete() ||
         c.lineage->hash_only_nodes() > 0;
}

// Returns whether a checkpoint should begin now.
bool IsDue(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  const ConnectionState& c = r.connection;
  if (c.lineage == nullptr) return false;
  const bool due = IsAskedFor(r) ||
                   (c.checkpoint.new_messages &&
                    (IsNearlyFull(r) || (IsTimed(c) && Now(r) >= DueAt(r))));
  return due && MayBegin(r);
}

// Returns whether one of the oldest reads is done. Values arrive about in
// order, and looking at all would take long for many.
bool HasArrived(const CheckpointState& k) {
  return std::any_of(k.reads.begin(),
                     k.reads.begin() + std::min(k.reads.size(), kLookedAt),
                     [](const auto& read) { return read->done; });
}

absl::Status NoRoom(uint64_t limit, uint64_t used, uint64_t bytes) {
  return LimitExceeded("CHECKPOINT_MEMORY", "checkpoint_memory", limit, used,
                       bytes);
}

// Reads nothing if there is no room.
void Begin(State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  ConnectionState& c = r.connection;
  CheckpointState& k = c.checkpoint;
  k.under_way = true;
  k.began = Now(r);
  k.values = 0;
  k.bytes = 0;
  k.no_room = absl::OkStatus();
  k.new_messages = false;
  k.answers = IsAskedFor(r) ? k.asked : k.answered;
  uint64_t bytes = 0;
  for (const Lineage::Value& value : c.lineage->ToBeRead()) {
    const uint64_t size = SizeToRead(c, value);
    if (size == 0) continue;
    k.left.push_back(value.storage);
    bytes += size + kOverhead;
  }
  std::reverse(k.left.begin(), k.left.end());
  // Earlier values stay until all of the new ones are here.
  const uint64_t limit = r.context->options.checkpoint_memory;
  const uint64_t used = c.lineage->anchored_bytes();
  if (used + bytes <= limit ||
      used + bytes - limit <= r.context->spill->room()) {
    return;
  }
  k.left.clear();
  k.no_room = NoRoom(limit, used, bytes);
}

// Returns a message that installs the value. Its bytes stay in memory or, with
// `spill`, in the temporary file if there is room for them.
std::unique_ptr<KeptMessage> MessageFor(Read* read, SpillFile* spill) {
  auto kept = std::make_unique<KeptMessage>();
  auto request = std::make_shared<v1::ControlRequest>();
  v1::Install* const install = request->mutable_ordered()->mutable_install();
  install->set_storage(read->of.storage);
  if (read->buffer == nullptr) {
    install->set_inline_value(*std::move(read->value));
  } else {
    const absl::string_view bytes(read->buffer.get(), read->bytes);
    const ContentHash hash = HashContent(bytes.data(), bytes.size());
    v1::Transfer* const transfer = install->mutable_transfer();
    transfer->set_size_bytes(bytes.size());
    transfer->set_hash_high(hash.high);
    transfer->set_hash_low(hash.low);
    KeptBytes& source = kept->mutable_extras().source;
    if (spill == nullptr) {
      source.memory = {bytes, read->buffer};
    } else {
      source.spilled = spill->Keep(hash, bytes);
    }
  }
  kept->request = std::move(request);
  return kept;
}

// Makes anchors of the values that arrived.
void TakeArrived(State& r) {
  ConnectionState& c = r.connection;
  CheckpointState& k = c.checkpoint;
  const uint64_t limit = r.context->options.checkpoint_memory;
  std::vector<std::shared_ptr<Read>> arrived;
  uint64_t used = 0;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    uint64_t taken = 0;
    std::erase_if(k.reads, [&](const std::shared_ptr<Read>& read) {
      if (!read->done || taken >= kMostTaken) return false;
      taken += read->bytes;
      arrived.push_back(read);
      return true;
    });
    k.bytes_under_way -= taken;
    if (!arrived.empty()) used = c.lineage->anchored_bytes();
  }
  if (arrived.empty()) return;
  std::vector<Lineage::Anchored> anchored;
  absl::Status no_room;
  uint64_t bytes = 0;
  for (const auto& read : arrived) {
    // A poisoned value, for example, has no bytes.
    if (!read->error.ok()) continue;
    const bool fits = used + read->bytes + kOverhead <= limit;
    auto kept = MessageFor(read.get(), fits ? nullptr : r.context->spill.get());
    if (!kept->has_bytes()) {
      no_room = NoRoom(limit, used, read->bytes);
      continue;
    }
    bytes += read->bytes;
    const bool spilled = kept->extras().source.spilled != nullptr;
    const uint64_t in_memory = spilled ? 0 : read->bytes;
    used += in_memory + kOverhead;
    anchored.push_back(
        {read->of, std::move(kept), in_memory + sizeof(KeptMessage)});
  }
  MutexLock lock(&c.mu);
  std::erase_if(anchored, [](const Lineage::Anchored& each) {
    return !each.value.producer->error.ok();
  });
  k.no_room.Update(no_room);
  k.values += anchored.size();
  k.bytes += bytes;
  c.lineage->Anchor(std::move(anchored));
  for (const auto& read : arrived) {
    c.lineage->Release(read->of.producer);
  }
  MutexLock answers_lock(&r.answers.mu);
  r.answers.statistics.checkpoint_bytes += bytes;
}

// Asks for values, as many as may be on their way.
void AskForMore(State& r) {
  ConnectionState& c = r.connection;
  CheckpointState& k = c.checkpoint;
  std::vector<std::pair<Lineage::Value, uint64_t>> chosen;
  uint64_t inline_bytes = 0;
  const uint64_t most =
      r.context->options.checkpoint_memory / CheckpointState::kShareUnderWay;
  {
    MutexLock lock(&c.mu);
    if (!k.under_way) return;
    // A device that ends needs no anchors.
    if (!c.end.usable()) k.left.clear();
    inline_bytes = c.limits.inline_bytes();
    while (!k.left.empty()) {
      const Lineage::Value value = c.lineage->Find(k.left.back());
      // It may be freed since.
      const uint64_t bytes =
          value.producer == nullptr ? 0 : SizeToRead(c, value);
      if (bytes > 0) {
        if (k.bytes_under_way > 0 && k.bytes_under_way + bytes > most) {
          break;
        }
        k.bytes_under_way += bytes;
        Lineage::Hold(value.producer);
        chosen.emplace_back(value, bytes);
      }
      k.left.pop_back();
    }
  }
  if (chosen.empty()) return;
  EncodedMessages messages;
  std::vector<std::shared_ptr<Read>> reads;
  for (const auto& [value, bytes] : chosen) {
    const bool in_reply = bytes <= inline_bytes;
    // Not initialized, because every byte arrives.
    reads.push_back(std::make_shared<Read>(
        value, std::shared_ptr<char[]>(in_reply ? nullptr : new char[bytes]),
        bytes));
    srg::TensorView whole;
    whole.data_type = srg::DataType::kUint8;
    whole.sizes = {static_cast<int64_t>(bytes)};
    whole.strides = {1};
    auto request = std::make_shared<v1::ControlRequest>();
    v1::Read* const read = request->mutable_ordered()->mutable_read();
    read->set_storage(value.storage);
    read->set_version(value.version);
    *read->mutable_view() = srg::ToProto(whole);
    if (!in_reply) read->set_transfer_id(r.sender.encoder.NextTransferId());
    r.sender.encoder.EncodeOther(0, std::move(request), &messages);
    messages.back().registration = std::shared_ptr<ReadWait>(reads.back());
  }
  {
    MutexLock lock(&c.mu);
    if (c.lineage != nullptr) {
      k.reads.insert(k.reads.end(), reads.begin(), reads.end());
    }
  }
  Append(r, std::move(messages));
}

// Ends the checkpoint once all of its values are here. Returns an error that
// deserves a warning, or OK. Sets `report` if operators should hear of it.
absl::Status EndIfDone(State& r, std::optional<v1::SessionRequest>* report) {
  ConnectionState& c = r.connection;
  CheckpointState& k = c.checkpoint;
  MutexLock lock(&c.mu);
  if (!k.under_way || !k.left.empty() || !k.reads.empty()) {
    return absl::OkStatus();
  }
  k.under_way = false;
  k.ended = Now(r);
  k.took = k.ended - k.began;
  k.bytes_after = c.lineage->bytes();
  k.spilled_after = r.context->spill->used();
  if (k.answers > k.answered) {
    k.answered = k.answers;
    k.outcome = k.no_room;
  }
  c.connection_changed.SignalAll();
  if (k.values > 0 || !k.no_room.ok()) {
    v1::CheckpointReport* const ended = report->emplace().mutable_checkpoint();
    ended->set_virtual_device(static_cast<uint32_t>(r.index));
    ended->set_member(static_cast<uint32_t>(r.role.member));
    ended->set_values(k.values);
    ended->set_bytes(k.bytes);
    *ended->mutable_took() = ToProtoDuration(k.took);
    if (!k.no_room.ok()) *ended->mutable_failure() = ShortDetail(k.no_room);
  }
  if (k.values > 0) {
    MutexLock answers_lock(&r.answers.mu);
    ++r.answers.statistics.checkpoints;
  }
  if (k.no_room.ok() || std::exchange(k.warned, true)) return absl::OkStatus();
  return k.no_room;
}

// Leaves the worker if that waited for the checkpoint that is done.
void LeaveIfDone(State& r) {
  ConnectionState& c = r.connection;
  CheckpointState& k = c.checkpoint;
  absl::Status lost;
  {
    MutexLock lock(&c.mu);
    if (k.leaves_after == 0 || k.answered < k.leaves_after) return;
    k.leaves_after = 0;
    // Without room for the checkpoint, everything is computed again.
    lost = LoseLease(r, kFallbackEnded);
  }
  if (!lost.ok()) Fail(r, std::move(lost));
  r.sender.wakeup.Set();
}

}  // namespace

bool LeaveWithCheckpoint(State& r) {
  ConnectionState& c = r.connection;
  CheckpointState& k = c.checkpoint;
  MutexLock answers_lock(&r.answers.mu);
  if (!MayBegin(r)) return false;
  if (k.leaves_after > 0) return true;
  k.leaves_after = ++k.asked;
  k.works_before = std::max(k.works_before, r.queue.popped());
  return true;
}

bool CheckpointStepDue(const State& r) {
  const CheckpointState& k = r.connection.checkpoint;
  if (!k.under_way) return IsDue(r);
  return HasArrived(k) || (k.left.empty() && k.reads.empty()) ||
         (!k.left.empty() && (k.reads.empty() || !r.connection.end.usable()));
}

bool CheckpointHoldsWorkBack(const State& r) {
  const CheckpointState& k = r.connection.checkpoint;
  return k.under_way && !k.left.empty();
}

void StepCheckpoint(State& r) {
  ConnectionState& c = r.connection;
  TakeArrived(r);
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    if (!c.checkpoint.under_way && IsDue(r)) Begin(r);
  }
  AskForMore(r);
  std::optional<v1::SessionRequest> report;
  const absl::Status no_room = EndIfDone(r, &report);
  if (report.has_value()) r.context->link->Report(*std::move(report));
  LeaveIfDone(r);
  if (no_room.ok()) return;
  log::Warning(
      "there is no room for a checkpoint; after the loss of its worker, the "
      "device computes everything again since the last one",
      {{"device", r.index}, {"error", no_room}});
}

Deadline NextCheckpoint(const State& r) {
  const ConnectionState& c = r.connection;
  Clock* const clock = r.context->options.clock;
  MutexLock lock(&c.mu);
  if (c.lineage == nullptr || !IsTimed(c)) {
    return Deadline(absl::InfiniteDuration(), clock);
  }
  MutexLock answers_lock(&r.answers.mu);
  const bool waits =
      MayBegin(r) && !c.checkpoint.under_way && c.checkpoint.new_messages;
  return Deadline(waits ? DueAt(r) - Now(r) : absl::InfiniteDuration(), clock);
}

absl::Status Checkpoint(State& r, const Deadline& deadline) {
  ConnectionState& c = r.connection;
  CheckpointState& k = c.checkpoint;
  if (IsForkedChild()) return AfterForkError();
  {
    MutexLock lock(&c.mu);
    if (!c.end.usable()) return TellEnd(r);
  }
  r.recorder.SealAll();
  uint64_t asked = 0;
  {
    MutexLock lock(&c.mu);
    // The device has computed nothing.
    if (!c.welcomed && r.queue.empty()) return absl::OkStatus();
    r.queue.NeedLease();
    asked = ++k.asked;
    k.works_before = r.queue.pushed();
  }
  r.sender.wakeup.Set();
  MutexLock lock(&c.mu);
  while (k.answered < asked) {
    if (!c.end.usable()) return TellEnd(r);
    if (deadline.passed()) {
      return MakeError(
          absl::StatusCode::kDeadlineExceeded, "CHECKPOINT_PENDING",
          absl::StrCat("device ", r.index, " has not finished its checkpoint"));
    }
    WaitUntil(&c.connection_changed, &c.mu, deadline);
  }
  return k.outcome;
}

}  // namespace djinn::replica
