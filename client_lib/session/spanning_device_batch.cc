// Recordings on a device that spans workers: where the coordinator has a plan
// of their rows, every member carries them out on some of these, or some of
// them on all (spanning_device_micro_batches.cc).
//
// What a recording keeps, and what has no rows, each member has a copy of. What
// comes by rows is cut where it is, and the rows go from worker to worker; so
// do the rows of the outputs, which are put together on the first member.
// Nobody waits: the members' orders are such that each fetches what was offered
// before.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/session/call_sites.h"
#include "client_lib/session/execution_flag.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/row_shares.h"
#include "client_lib/session/shared_replay.h"
#include "client_lib/session/spanning_device.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/srg/proto_codec.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

// Kinds of recordings that plans are remembered of, and questions that wait for
// their answers.
constexpr size_t kMaxSharings = 64;
constexpr size_t kMaxQuestions = 16;

absl::Status Stale(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_RECORDING",
                   why);
}

std::string Describe(const v1::StageAnswer& answer) {
  const v1::BatchPlan& plan = answer.batch();
  if (answer.has_plan()) {
    return absl::StrCat(plan.parts_size(), " micro-batches of ",
                        plan.parts(0).rows(), " rows at most");
  }
  std::string text;
  for (const v1::BatchPlan::Part& part : plan.parts()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", part.rows(), " rows on ",
                    part.worker_id());
  }
  return text;
}

}  // namespace

// --- Recordings that are made ---

absl::Status SpanningDevice::StartRecording(uint32_t lane) {
  // The first member refuses it while the device spans.
  if (!spans() || !FastExecution() ||
      !context_->options.copy_operator.has_value()) {
    return first_->StartRecording(lane);
  }
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(first_->failure());
  MutexLock lock(&mu_);
  if (!recorders_.try_emplace(lane, std::make_unique<Recorder>()).second) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "ALREADY_RECORDING",
                     "the thread's calls are being recorded already");
  }
  return absl::OkStatus();
}

std::unique_ptr<Recorder> SpanningDevice::TakeRecorder(uint32_t lane) {
  MutexLock lock(&mu_);
  const auto found = recorders_.find(lane);
  if (found == recorders_.end()) return nullptr;
  std::unique_ptr<Recorder> recorder = std::move(found->second);
  recorders_.erase(found);
  return recorder;
}

absl::Status SpanningDevice::RecordingRefusal(uint32_t lane) {
  if (IsForkedChild()) return AfterForkError();
  {
    MutexLock lock(&mu_);
    const auto found = recorders_.find(lane);
    if (found != recorders_.end()) return found->second->refusal();
  }
  return first_->RecordingRefusal(lane);
}

void SpanningDevice::DropRecording(uint32_t lane) {
  if (IsForkedChild()) return;
  // Destroyed without the lock.
  const std::unique_ptr<Recorder> recorder = TakeRecorder(lane);
  if (recorder == nullptr) first_->DropRecording(lane);
}

void SpanningDevice::NoteCall(uint32_t lane, const Call& call) {
  if (recorders_.empty()) return;
  const auto found = recorders_.find(lane);
  if (found == recorders_.end()) return;
  found->second->Add(
      call, [this](RemoteStorage* storage) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return CopiesOf(storage).holders != 0;
      });
}

void SpanningDevice::RefuseRecording(uint32_t lane, absl::string_view reason,
                                     absl::string_view what) {
  const auto found = recorders_.find(lane);
  if (found != recorders_.end()) found->second->Refuse(reason, what);
}

void SpanningDevice::OnMeter(uint32_t lane) {
  if (!spans()) return;
  MutexLock lock(&mu_);
  RefuseRecording(lane, "METERS", "it asks what it costs");
}

absl::StatusOr<std::shared_ptr<const Recording>>
SpanningDevice::FinishRecording(uint32_t lane,
                                absl::Span<RemoteStorage* const> given,
                                absl::Span<RemoteStorage* const> outputs,
                                size_t awaited) {
  if (IsForkedChild()) return AfterForkError();
  const std::unique_ptr<Recorder> recorder = TakeRecorder(lane);
  if (recorder == nullptr) {
    return first_->FinishRecording(lane, given, outputs, awaited);
  }
  // All of it before any output: they are put together at its end.
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Recording> recording,
                         recorder->Finish(given, outputs, /*awaited=*/0));
  const absl::Status shared = FindSharing(recording.get());
  if (shared.ok()) return recording;
  return MakeError(
      absl::StatusCode::kFailedPrecondition, kSpansWorkers,
      absl::StrCat("it uses a device that spans workers, and its rows are not "
                   "shared out between them: ",
                   shared.message()));
}

absl::Status SpanningDevice::FindSharing(Recording* recording) {
  DJINN_RETURN_IF_ERROR(CheckShareable(*recording));
  {
    MutexLock lock(&stages_mu_);
    if (sharings_.size() >= kMaxSharings) sharings_.clear();
    std::shared_ptr<RowSharing>& sharing = sharings_[SharingKey(*recording)];
    if (sharing == nullptr) sharing = std::make_shared<RowSharing>();
    recording->sharing = sharing;
  }
  if (recording->sharing->Asks()) AskForShares(*recording);
  return recording->sharing->shares().status();
}

void SpanningDevice::AskForShares(const Recording& recording) {
  const RecordingPart& part = recording.parts[0];
  v1::StageRequest request;
  request.set_virtual_device(static_cast<uint32_t>(index_));
  *request.mutable_recording() = SlotsOf(recording);
  // Without what it keeps, whose storages hold the device.
  auto asked = std::make_shared<Recording>(recording);
  asked->kept.clear();
  {
    MutexLock lock(&stages_mu_);
    request.set_number(++last_question_);
    share_questions_.emplace(last_question_, std::move(asked));
    if (share_questions_.size() > kMaxQuestions) {
      share_questions_.erase(share_questions_.begin());
    }
  }
  context_->link->SendStructure(srg::ToProto(part.structure),
                                NotesOf(part.sites), std::move(request));
}

void SpanningDevice::OnShares(const v1::StageAnswer& answer) {
  std::shared_ptr<const Recording> recording;
  {
    MutexLock lock(&stages_mu_);
    const auto question = share_questions_.find(answer.number());
    if (question == share_questions_.end()) return;
    recording = std::move(question->second);
    share_questions_.erase(question);
  }
  auto shares = MakeShares(*recording, answer, count());
  const std::string structure = answer.batch().fingerprint().substr(0, 12);
  if (shares.ok()) {
    log::Info((*shares)->stages.empty()
                  ? "a recording's rows are shared out"
                  : "a recording's rows go through stages",
              {{"device", index_},
               {"structure", structure},
               {"parts", Describe(answer)}});
  } else {
    log::Info("a recording's rows stay together",
              {{"device", index_},
               {"structure", structure},
               {"why", shares.status().message()}});
  }
  recording->sharing->Answer(std::move(shares));
}

// --- Recordings that are carried out ---

absl::StatusOr<std::vector<StoragePtr>> SpanningDevice::ReplayShared(
    uint32_t lane, const std::shared_ptr<const Recording>& recording,
    absl::Span<RemoteStorage* const> given) {
  if (IsForkedChild()) return AfterForkError();
  if (recording->sharing == nullptr || !FastExecution()) {
    return Stale("the device spans workers");
  }
  const auto shares = recording->sharing->shares();
  if (!shares.ok() || *shares == nullptr) {
    return Stale("its rows are not shared out between the device's workers");
  }
  MutexLock lock(&mu_);
  RefuseRecording(lane, "NESTED", "it carries out another recording");
  SharedReplay replay{lane, recording, *shares, given, {}};
  DJINN_RETURN_IF_ERROR(CheckShared(replay));
  BeginRound();
  auto outputs = (*shares)->stages.empty() ? CarryOutParts(&replay)
                                           : CarryOutInStages(&replay);
  for (const auto& [member, storage] : replay.passing) {
    members_[member]->MarkDead(storage.get());
  }
  return outputs;
}

absl::Status SpanningDevice::CheckShared(const SharedReplay& replay) {
  const Recording& recording = *replay.recording;
  if (replay.given.size() != recording.given) {
    return MakeError(absl::StatusCode::kInternal, "GIVEN_STORAGES",
                     "a recording is given another number of storages");
  }
  for (const RemoteStorage* const storage : replay.given) {
    if (storage->device().get() != this) {
      return Stale("an argument is on another virtual device");
    }
  }
  for (const StoragePtr& storage : recording.kept) {
    if (storage->device().get() != this || storage->dead()) {
      return Stale("a tensor that it used is no longer there");
    }
  }
  return replay.shares->stages.empty() ? CheckRoomForParts(replay)
                                       : CheckRoomForStages(replay);
}

uint64_t SpanningDevice::LackedBytes(RemoteStorage* storage, int member) {
  return CopiesOf(storage).Counts(member) ? 0 : storage->size_bytes();
}

absl::Status SpanningDevice::CheckRoomForParts(const SharedReplay& replay) {
  const uint64_t output_bytes = replay.OutputBytes();
  for (const RowShares::Part& part : replay.shares->parts) {
    uint64_t takes = part.member == kHome ? 2 * output_bytes : 0;
    for (const StoragePtr& storage : replay.recording->kept) {
      takes += LackedBytes(storage.get(), part.member);
    }
    for (size_t i = 0; i < replay.given.size(); ++i) {
      const uint64_t row_bytes = replay.shares->given_row_bytes[i];
      takes += row_bytes == 0 ? LackedBytes(replay.given[i], part.member)
                              : row_bytes * part.rows;
    }
    for (const uint64_t row_bytes : replay.shares->output_row_bytes) {
      takes += row_bytes * part.rows;
    }
    if (RoomLeft(part.member) < static_cast<int64_t>(takes)) {
      return Stale("a worker has no room for its part");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoragePtr>> SpanningDevice::CarryOutParts(
    SharedReplay* replay) {
  const RowShares& shares = *replay->shares;
  // Rows leave before anybody begins with his own: what is far is to be early.
  std::vector<std::vector<RemoteStorage*>> given(shares.parts.size());
  for (size_t i = shares.parts.size(); i-- > 0;) {
    DJINN_ASSIGN_OR_RETURN(given[i], BringGiven(replay, shares.parts[i]));
  }
  std::vector<std::vector<RowsAt>> made(shares.parts.size());
  for (size_t i = 0; i < shares.parts.size(); ++i) {
    const RowShares::Part& part = shares.parts[i];
    std::vector<StoragePtr> outputs;
    for (const uint64_t row_bytes : shares.output_row_bytes) {
      outputs.push_back(NewPart(row_bytes * part.rows));
      made[i].push_back(
          {part.member, replay->Pass(part.member, outputs.back())});
    }
    std::vector<RemoteStorage*> kept;
    for (const StoragePtr& storage : replay->recording->kept) {
      kept.push_back(CopyAt(storage.get(), part.member));
    }
    // The calls are the program's once, however many carry them out.
    const size_t calls =
        i == 0 ? replay->recording->parts[0].structure.nodes.size() : 0;
    DJINN_RETURN_IF_ERROR(members_[part.member]->ReplayShare(
        replay->lane,
        {replay->recording,
         std::shared_ptr<const SizedStructure>(replay->shares,
                                               &shares.structure),
         shares.SizeOf(part.rows), calls},
        {given[i], kept, outputs}));
    // What nothing had written is zero-filled there.
    for (const StoragePtr& storage : replay->recording->kept) {
      Count(storage.get(), part.member);
    }
    for (size_t k = 0; k < replay->given.size(); ++k) {
      if (shares.given_row_bytes[k] == 0) Count(replay->given[k], part.member);
    }
  }
  return PutTogether(replay, made);
}

absl::StatusOr<std::vector<StoragePtr>> SpanningDevice::PutTogether(
    SharedReplay* replay, absl::Span<const std::vector<RowsAt>> made) {
  const RowShares& shares = *replay->shares;
  std::vector<StoragePtr> outputs;
  for (const uint64_t bytes : replay->recording->output_bytes) {
    outputs.push_back(NewStorage(bytes));
  }
  for (size_t i = 0; i < shares.parts.size(); ++i) {
    const RowShares::Part& part = shares.parts[i];
    for (size_t k = 0; k < outputs.size(); ++k) {
      const uint64_t row_bytes = shares.output_row_bytes[k];
      DJINN_ASSIGN_OR_RETURN(
          RemoteStorage* const rows,
          Send(replay, made[i][k].storage, made[i][k].member, kHome));
      DJINN_RETURN_IF_ERROR(
          CopyBytes(replay->lane, kHome, {rows, 0},
                    {CopyAt(outputs[k].get(), kHome), part.first * row_bytes},
                    part.rows * row_bytes));
    }
  }
  last_ = kHome;
  for (const StoragePtr& output : outputs) {
    DJINN_RETURN_IF_ERROR(Wrote(replay->lane, output.get(), kHome));
  }
  return outputs;
}

absl::StatusOr<std::vector<RemoteStorage*>> SpanningDevice::BringGiven(
    SharedReplay* replay, const RowShares::Part& part) {
  for (const StoragePtr& storage : replay->recording->kept) {
    DJINN_RETURN_IF_ERROR(BringWhole(replay->lane, storage.get(), part.member));
  }
  std::vector<RemoteStorage*> there;
  for (size_t i = 0; i < replay->given.size(); ++i) {
    DJINN_ASSIGN_OR_RETURN(there.emplace_back(),
                           BringOneGiven(replay, i, part));
  }
  return there;
}

absl::StatusOr<RemoteStorage*> SpanningDevice::BringOneGiven(
    SharedReplay* replay, size_t index, const RowShares::Part& part) {
  RemoteStorage* const storage = replay->given[index];
  const uint64_t row_bytes = replay->shares->given_row_bytes[index];
  if (row_bytes > 0) return BringRows(replay, storage, part, row_bytes);
  DJINN_RETURN_IF_ERROR(BringWhole(replay->lane, storage, part.member));
  return CopyAt(storage, part.member);
}

absl::Status SpanningDevice::BringWhole(uint32_t lane, RemoteStorage* storage,
                                        int member) {
  const StorageCopies& copies = CopiesOf(storage);
  if (copies.IsUnsure(member)) {
    DJINN_RETURN_IF_ERROR(MakeSure(lane, storage, member));
  }
  if (copies.holders == 0 || copies.Holds(member)) return absl::OkStatus();
  return Bring(lane, storage, member);
}

absl::StatusOr<RemoteStorage*> SpanningDevice::BringRows(
    SharedReplay* replay, RemoteStorage* storage, const RowShares::Part& part,
    uint64_t row_bytes) {
  const StorageCopies& copies = CopiesOf(storage);
  const uint64_t bytes = part.rows * row_bytes;
  // Zeros, when they are used.
  if (copies.holders == 0) return replay->Pass(part.member, NewPart(bytes));
  if (copies.IsUnsure(part.member)) {
    DJINN_RETURN_IF_ERROR(MakeSure(replay->lane, storage, part.member));
  }
  const bool there = copies.Holds(part.member);
  const int from = there ? part.member : copies.owner;
  if (there && part.first == 0) return CopyAt(storage, from);
  RemoteStorage* const rows = replay->Pass(from, NewPart(bytes));
  DJINN_RETURN_IF_ERROR(CopyBytes(
      replay->lane, from, {CopyAt(storage, from), part.first * row_bytes},
      {rows, 0}, bytes));
  return Send(replay, rows, from, part.member);
}

absl::StatusOr<RemoteStorage*> SpanningDevice::Send(SharedReplay* replay,
                                                    RemoteStorage* storage,
                                                    int from, int to,
                                                    double remaining_seconds) {
  if (from == to) return storage;
  // What has no bytes is the same everywhere.
  if (storage->size_bytes() == 0) return replay->Pass(to, NewPart(0));
  DJINN_ASSIGN_OR_RETURN(PullWork pull,
                         members_[from]->Offer(replay->lane, storage, kOrdered,
                                               {round_, remaining_seconds}));
  RemoteStorage* const there = replay->Pass(to, NewPart(storage->size_bytes()));
  DJINN_RETURN_IF_ERROR(
      members_[to]->Pull(replay->lane, there, std::move(pull), kOrdered));
  return there;
}

absl::Status SpanningDevice::CopyBytes(uint32_t lane, int member,
                                       const BytesAt& from, const BytesAt& to,
                                       uint64_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  const int64_t stride = 1;
  Call call;
  call.Begin(*context_->options.copy_operator);
  const auto add = [&](const BytesAt& at, uint8_t access) {
    Operand operand;
    operand.storage = at.storage;
    operand.access = access;
    operand.data_type = srg::DataType::kUint8;
    operand.sizes = absl::MakeConstSpan(&size, 1);
    operand.strides = absl::MakeConstSpan(&stride, 1);
    operand.storage_offset = static_cast<int64_t>(at.offset);
    call.AddTensor(operand);
  };
  add(to, kWrites);
  add(from, kReads);
  call.AddBoolean(false);
  return members_[member]->Record(lane, &call, kOrdered);
}

StoragePtr SpanningDevice::NewPart(uint64_t bytes) {
  return StoragePtr(new RemoteStorage(/*id=*/0, shared_from_this(), bytes));
}

}  // namespace djinn
