#include "client_lib/session/device/replica/replica_state.h"

#include <utility>

#include "client_lib/session/device/replica/copies.h"
#include "client_lib/session/device/replica/replica.h"

namespace djinn::replica {
namespace {

// Returns the first id of the replica's storages and transfers. Each replica
// counts by itself, so that its worker sees every number. At 100,000 storages a
// second, a replica uses fewer than 2^36 numbers in a week.
uint64_t FirstId(const ReplicaRole& role) {
  constexpr int kDeviceShift = 48;
  constexpr int kIncarnationShift = 36;
  static_assert(kMaxIncarnations << kIncarnationShift == uint64_t{1}
                                                             << kDeviceShift);
  const int device = role.member << 8 | role.index;
  return (static_cast<uint64_t>(device) << kDeviceShift) +
         (role.incarnation << kIncarnationShift) + 1;
}

}  // namespace

State::State(ReplicaRole role_of_replica,
             std::shared_ptr<SessionContext> context_of_session)
    : role(std::move(role_of_replica)),
      index(role.index),
      context(std::move(context_of_session)),
      recorder(role.owner, &queue, this, FirstId(role)),
      answers(&context->options, &receiver),
      sender(index, context, &queue, role.on_repeat, FirstId(role)),
      reader(index, context.get(), &recorder, &answers, this),
      uploader(&context->options, role.used_bytes, &recorder, &answers, this,
               &connection.moves) {
  context->source_losses.Add(&sender.wakeup);
  if (!context->options.recovers) return;
  MutexLock lock(&connection.mu);
  connection.lineage =
      std::make_unique<Lineage>(context->options.replay_memory);
  connection.checkpoint.enabled = context->options.checkpoints;
  connection.checkpoint.ended = context->options.clock->Monotonic();
  sender.encoder.Keep([&c = connection](uint64_t bytes) {
    MutexLock has_lock(&c.mu);
    // Further messages must not make a checkpoint due at once.
    return c.lineage->bytes() + bytes <= c.lineage->budget() / 4;
  });
}

State::~State() { context->source_losses.Remove(&sender.wakeup); }

void State::Release(RemoteStorage* storage) {
  replica::Release(*this, storage);
}

CopySource::View State::Look(const RemoteStorage& storage) {
  return LookAt(*this, storage);
}

absl::StatusOr<std::optional<OfferedCopy>> State::OfferAgain(
    RemoteStorage* storage, bool recovers) {
  return replica::OfferAgain(*this, storage, recovers);
}

absl::Status State::AwaitWindow() { return replica::AwaitWindow(*this); }

void State::SendNow() { replica::SendNow(*this); }

void State::OnMessage(v1::ControlResponse response) {
  replica::OnMessage(*this, std::move(response));
}

void State::OnBulk(uint64_t transfer_id, uint64_t offset,
                   absl::Span<const absl::string_view> pieces) {
  replica::OnBulk(*this, transfer_id, offset, pieces);
}

void State::OnClosed(absl::Status status) {
  replica::OnClosed(*this, std::move(status));
}

}  // namespace djinn::replica
