#include "client_lib/session/testing/fake_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/content_proof.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "common/srg/size_hole.h"

namespace djinn {
namespace {

constexpr char kProofKey[] = "0123456789abcdef";

// The view's elements in order, from its first dimension on.
void Gather(const std::string& bytes, const srg::TensorView& view,
            size_t dimension, int64_t element, std::string* out) {
  if (dimension == view.sizes.size()) {
    const int64_t size = srg::ElementSize(view.data_type);
    out->append(bytes, element * size, size);
    return;
  }
  if (dimension + 1 == view.sizes.size() && view.strides[dimension] == 1) {
    const int64_t size = srg::ElementSize(view.data_type);
    out->append(bytes, element * size, view.sizes[dimension] * size);
    return;
  }
  for (int64_t i = 0; i < view.sizes[dimension]; ++i) {
    Gather(bytes, view, dimension + 1, element + i * view.strides[dimension],
           out);
  }
}

}  // namespace

v1::SessionLimits FakeWorker::DefaultLimits() {
  v1::SessionLimits limits;
  limits.set_memory_bytes(1 << 30);
  limits.set_max_outstanding(64);
  limits.set_max_outstanding_bytes(16 << 20);
  limits.set_inline_bytes(8192);
  limits.set_max_structures(64);
  return limits;
}

FakeWorker::FakeWorker(v1::SessionLimits limits, std::string id)
    : limits_(std::move(limits)), id_(std::move(id)) {}

FakeWorker::~FakeWorker() {
  std::vector<std::unique_ptr<Link>> links;
  MutexLock lock(&mu_);
  links.swap(links_);
}

void FakeWorker::Serve(std::unique_ptr<WorkerStream> stream) {
  MutexLock lock(&mu_);
  link_ = links_.emplace_back(std::make_unique<Link>()).get();
  link_->worker = this;
  link_->stream = std::move(stream);
  closed_ = false;
  link_->stream->Start(link_);
  if (break_streams_ == 0) return;
  --break_streams_;
  EndLink(absl::UnavailableError("no route"));
}

void FakeWorker::Pause() {
  MutexLock lock(&mu_);
  paused_ = true;
}

void FakeWorker::Resume() {
  MutexLock lock(&mu_);
  paused_ = false;
  Work();
}

void FakeWorker::BeSilent() {
  MutexLock lock(&mu_);
  silent_ = true;
}

void FakeWorker::AskForProofs() {
  MutexLock lock(&mu_);
  ask_for_proofs_ = true;
}

void FakeWorker::AnswerTransfers(Transfers answer) {
  MutexLock lock(&mu_);
  transfers_ = answer;
}

void FakeWorker::FailNextRun(uint64_t error_id) {
  MutexLock lock(&mu_);
  fail_next_run_ = error_id;
}

void FakeWorker::FailNextPull(uint64_t error_id) {
  MutexLock lock(&mu_);
  fail_next_pull_ = error_id;
}

void FakeWorker::AnswerMetadata(v1::RunMetadata metadata) {
  MutexLock lock(&mu_);
  metadata_ = std::move(metadata);
}

void FakeWorker::SayFacts(v1::DeviceSpeed speed, std::string numerics) {
  MutexLock lock(&mu_);
  speed_ = speed;
  numerics_ = std::move(numerics);
}

void FakeWorker::TakeNoMeters() {
  MutexLock lock(&mu_);
  takes_meters_ = false;
}

void FakeWorker::TakeNoModels() {
  MutexLock lock(&mu_);
  takes_models_ = false;
}

void FakeWorker::LimitModels(uint64_t model_bytes) {
  MutexLock lock(&mu_);
  model_bytes_ = model_bytes;
}

std::map<uint64_t, v1::RegisterModel> FakeWorker::models() const {
  MutexLock lock(&mu_);
  return models_;
}

void FakeWorker::TakeProfiles(v1::ReplyTiming timing,
                              v1::ProfileReport report) {
  MutexLock lock(&mu_);
  takes_profiles_ = true;
  timing_ = std::move(timing);
  report_ = std::move(report);
}

void FakeWorker::SayWrongId() {
  MutexLock lock(&mu_);
  wrong_id_ = true;
}

void FakeWorker::SayWrongFingerprints() {
  MutexLock lock(&mu_);
  wrong_fingerprints_ = true;
}

void FakeWorker::HoldBulk(bool hold) {
  MutexLock lock(&mu_);
  hold_bulk_ = hold;
  changed_.SignalAll();
}

void FakeWorker::DelayBulk(absl::Duration delay) {
  MutexLock lock(&mu_);
  bulk_delay_ = delay;
}

void FakeWorker::Say(v1::ControlResponse response) {
  MutexLock lock(&mu_);
  Respond(std::move(response));
}

void FakeWorker::Break(absl::Status status) {
  MutexLock lock(&mu_);
  EndLink(std::move(status));
}

void FakeWorker::CutAt(Cut where, int n) {
  MutexLock lock(&mu_);
  cut_ = where;
  cut_at_ = n;
}

int FakeWorker::incoming() const {
  MutexLock lock(&mu_);
  return incoming_;
}

int FakeWorker::outgoing() const {
  MutexLock lock(&mu_);
  return outgoing_;
}

void FakeWorker::BreakStreams(int count) {
  MutexLock lock(&mu_);
  break_streams_ = count;
}

void FakeWorker::EnterFrom(FakeWorker* other) {
  MutexLock lock(&mu_);
  other_ = other;
}

void FakeWorker::RefuseToLet(int times) {
  MutexLock lock(&mu_);
  refuse_to_let_ = times;
}

void FakeWorker::AnswerEntries(Entries answer) {
  MutexLock lock(&mu_);
  entries_ = answer;
}

void FakeWorker::WaitLeft() {
  MutexLock lock(&mu_);
  while (!left_) changed_.Wait(&mu_);
}

void FakeWorker::WaitEntering() {
  MutexLock lock(&mu_);
  while (!entering_) changed_.Wait(&mu_);
}

void FakeWorker::Reset() {
  last_sequence_ = completed_ = last_reply_ = acknowledged_ = 0;
  counted_ = counted_bytes_ = done_ = done_bytes_ = last_structure_ = 0;
  waiting_.clear();
  replies_.clear();
  storages_.clear();
  models_.clear();
  defined_.clear();
  evicted_.clear();
  left_ = entering_ = false;
  session_runs_ = 0;
}

void FakeWorker::Restart(bool other_incarnation) {
  MutexLock lock(&mu_);
  if (other_incarnation) ++incarnation_;
  lost_ = true;
  Reset();
  EndLink(absl::UnavailableError("restarted"));
}

void FakeWorker::EvictPlans() {
  MutexLock lock(&mu_);
  for (const auto& [id, defined] : defined_) evicted_.insert(id);
}

void FakeWorker::IgnoreCancel() {
  MutexLock lock(&mu_);
  ignore_cancel_ = true;
}

int FakeWorker::resumes() const {
  MutexLock lock(&mu_);
  return resumes_;
}

int FakeWorker::cancels() const {
  MutexLock lock(&mu_);
  return cancels_;
}

std::vector<v1::Ordered> FakeWorker::received() const {
  MutexLock lock(&mu_);
  return received_;
}

void FakeWorker::WaitReceived(size_t count) {
  MutexLock lock(&mu_);
  while (received_.size() < count) changed_.Wait(&mu_);
}

void FakeWorker::WaitWaiting(size_t count) {
  MutexLock lock(&mu_);
  while (waiting_.size() < count) changed_.Wait(&mu_);
}

void FakeWorker::WaitForRead() {
  MutexLock lock(&mu_);
  while (waiting_.empty() || !waiting_.back().has_read()) changed_.Wait(&mu_);
}

void FakeWorker::WaitCancelled() {
  MutexLock lock(&mu_);
  while (cancels_ == 0) changed_.Wait(&mu_);
}

std::vector<v1::Run> FakeWorker::runs() const {
  MutexLock lock(&mu_);
  return carried_runs_;
}

std::vector<std::string> FakeWorker::run_fingerprints() const {
  MutexLock lock(&mu_);
  return run_fingerprints_;
}

std::vector<size_t> FakeWorker::run_node_counts() const {
  MutexLock lock(&mu_);
  return run_node_counts_;
}

std::string FakeWorker::contents(uint64_t storage) const {
  MutexLock lock(&mu_);
  const auto found = storages_.find(storage);
  return found == storages_.end() ? "" : found->second.bytes;
}

std::set<uint64_t> FakeWorker::live_storages() const {
  MutexLock lock(&mu_);
  std::set<uint64_t> ids;
  for (const auto& [id, storage] : storages_) ids.insert(id);
  return ids;
}

std::vector<std::string> FakeWorker::violations() const {
  MutexLock lock(&mu_);
  return violations_;
}

bool FakeWorker::hello_seen() const {
  MutexLock lock(&mu_);
  return hello_seen_;
}

absl::Status FakeWorker::WaitClosed() {
  MutexLock lock(&mu_);
  while (!closed_) changed_.Wait(&mu_);
  return close_status_;
}

void FakeWorker::OnMessage(Link* link, v1::ControlRequest message) {
  MutexLock lock(&mu_);
  if (link->over || !PassesIn()) return;
  Handle(std::move(message));
  PassedIn();
}

void FakeWorker::OnBulk(Link* link, uint64_t transfer_id, uint64_t offset,
                        absl::Span<const absl::string_view> pieces) {
  MutexLock lock(&mu_);
  while (hold_bulk_) changed_.Wait(&mu_);
  if (bulk_delay_ > absl::ZeroDuration()) absl::SleepFor(bulk_delay_);
  if (link->over || !PassesIn()) return;
  size_t size = 0;
  for (const absl::string_view piece : pieces) size += piece.size();
  if (transfer_id != receiving_ || offset % kBulkChunkBytes != 0 ||
      offset >= received_bulk_.size() ||
      size != std::min(kBulkChunkBytes, received_bulk_.size() - offset) ||
      !received_chunks_.insert(offset).second) {
    Violation(absl::StrCat("bulk for ", transfer_id, " at ", offset));
    return;
  }
  for (const absl::string_view piece : pieces) {
    received_bulk_.replace(offset, piece.size(), piece.data(), piece.size());
    offset += piece.size();
  }
  Work();
  PassedIn();
}

void FakeWorker::OnClosed(Link* link, absl::Status status) {
  MutexLock lock(&mu_);
  link->over = true;
  if (link != link_) return;
  closed_ = true;
  close_status_ = std::move(status);
  if (left_ && close_status_.ok()) Reset();
  changed_.SignalAll();
}

void FakeWorker::EndLink(absl::Status status) {
  link_->over = true;
  link_->stream->Close(std::move(status));
}

bool FakeWorker::PassesIn() {
  ++incoming_;
  if (cut_ != Cut::kBeforeIn || incoming_ != cut_at_) return true;
  EndLink(absl::UnavailableError("cut"));
  return false;
}

void FakeWorker::PassedIn() {
  if (cut_ == Cut::kAfterIn && incoming_ == cut_at_ && !link_->over) {
    EndLink(absl::UnavailableError("cut"));
  }
}

template <typename Out>
void FakeWorker::Pass(Out send) {
  if (link_->over) return;
  ++outgoing_;
  const bool cut = outgoing_ == cut_at_;
  if (!cut || cut_ != Cut::kBeforeOut) send(link_->stream.get());
  if (cut && (cut_ == Cut::kBeforeOut || cut_ == Cut::kAfterOut)) {
    EndLink(absl::UnavailableError("cut"));
  }
}

void FakeWorker::Handle(v1::ControlRequest message) {
  if (message.has_hello()) {
    HandleHello(message.hello());
    return;
  }
  if (!link_->greeted) Violation("no hello");
  Acknowledge(message.acknowledged_reply());
  if (message.has_supply()) {
    HandleSupply(message.supply());
  } else if (message.has_proof()) {
    // A stream that was cut may bring it again.
    if (message.proof().transfer_id() != proving_ ||
        message.proof().mac().size() != kContentMacBytes) {
      Violation(absl::StrCat("proof of ", message.proof().transfer_id()));
    }
    proof_ = message.proof().mac();
  } else if (message.has_cancel()) {
    ++cancels_;
    changed_.SignalAll();
    if (ignore_cancel_) return;
    waiting_.clear();
    v1::ControlResponse response;
    response.mutable_cancelled();
    Respond(std::move(response));
    return;
  } else if (message.has_ordered()) {
    if (message.ordered().sequence() != ++last_sequence_) {
      Violation(absl::StrCat("sequence ", message.ordered().sequence(),
                             " instead of ", last_sequence_));
    }
    const uint64_t bytes = message.ordered().ByteSizeLong();
    if (!message.ordered().has_free()) {
      if (counted_ >= done_ + limits_.max_outstanding() ||
          counted_bytes_ >= done_bytes_ + limits_.max_outstanding_bytes() ||
          bytes > limits_.max_outstanding_bytes()) {
        Violation("window exceeded");
      }
      ++counted_;
      counted_bytes_ += bytes;
    }
    waiting_.push_back(std::move(*message.mutable_ordered()));
    changed_.SignalAll();
  }
  Work();
}

void FakeWorker::HandleHello(const v1::ClientHello& hello) {
  if (link_->greeted) Violation("second hello");
  if (hello.lease_token() != "token" || hello.session_id() != "session") {
    Violation("wrong hello");
  }
  link_->greeted = hello_seen_ = true;
  changed_.SignalAll();
  if (silent_) return;
  if (hello.worker_incarnation() != incarnation_) {
    EndLink(MakeError(absl::StatusCode::kFailedPrecondition,
                      "WRONG_INCARNATION", "restarted"));
    return;
  }
  // Another one, before the end of that which left was noticed.
  if (!hello.has_resume() && left_) Reset();
  if (!hello.has_resume() && last_sequence_ > 0) Violation("no resume");
  if (hello.has_resume() && lost_) {
    EndLink(MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_LOST",
                      "nothing to resume"));
    return;
  }
  v1::ControlResponse response;
  v1::WorkerHello* const welcome = response.mutable_hello();
  welcome->set_protocol_version(1);
  welcome->set_worker_id(wrong_id_ ? "other" : id_);
  welcome->set_incarnation(incarnation_);
  *welcome->mutable_limits() = limits_;
  *welcome->mutable_speed() = speed_;
  welcome->set_numerics(numerics_);
  if (takes_profiles_) welcome->add_features(v1::WORKER_FEATURE_PROFILE);
  welcome->add_features(v1::WORKER_FEATURE_MIGRATE);
  if (takes_meters_) welcome->add_features(v1::WORKER_FEATURE_METER);
  if (takes_models_) welcome->add_features(v1::WORKER_FEATURE_MODELS);
  if (hello.has_resume()) {
    ++resumes_;
    if (hello.resume().sent_sequence() < last_sequence_) {
      Violation("resumes before what was received");
    }
    Acknowledge(hello.resume().acknowledged_reply());
    welcome->set_received_sequence(last_sequence_);
    if (receiving_ != 0) {
      uint64_t received = 0;
      while (received_chunks_.count(received) > 0) received += kBulkChunkBytes;
      // Beyond a gap they come again.
      received_chunks_.erase(received_chunks_.lower_bound(received),
                             received_chunks_.end());
      welcome->mutable_transfer()->set_transfer_id(receiving_);
      welcome->mutable_transfer()->set_received_bytes(
          std::min<uint64_t>(received, received_bulk_.size()));
    }
  }
  Respond(std::move(response));
  if (!hello.has_resume()) return;
  const std::deque<Reply> replies = replies_;
  for (const Reply& reply : replies) SendReply(reply);
  if (needed_ != 0) {
    v1::ControlResponse need;
    need.mutable_need()->set_structure_id(needed_);
    Respond(std::move(need));
  }
}

void FakeWorker::HandleSupply(const v1::DefineStructure& supply) {
  const auto found = defined_.find(supply.structure_id());
  if (supply.structure_id() != needed_ || found == defined_.end()) {
    Violation(absl::StrCat("supply of ", supply.structure_id()));
    return;
  }
  const absl::StatusOr<srg::Structure> structure =
      srg::FromProto(supply.structure());
  if (!structure.ok() ||
      srg::Fingerprint(*structure) != found->second.fingerprint) {
    Violation("supply of another structure");
  }
  evicted_.erase(needed_);
  needed_ = 0;
}

void FakeWorker::Acknowledge(uint64_t number) {
  if (number <= acknowledged_) return;
  if (number > last_reply_) Violation("acknowledges what was not said");
  acknowledged_ = number;
  while (!replies_.empty() &&
         replies_.front().response.reply_number() <= number) {
    replies_.pop_front();
  }
}

void FakeWorker::Work() {
  while (!paused_ && !waiting_.empty() &&
         replies_.size() < kMaxUnacknowledged) {
    if (!Carry(waiting_.front())) return;
    if (!waiting_.front().has_free()) {
      ++done_;
      done_bytes_ += waiting_.front().ByteSizeLong();
    }
    completed_ = waiting_.front().sequence();
    received_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    changed_.SignalAll();
    Respond({});
  }
}

bool FakeWorker::CarryMigrate(const v1::Ordered& message) {
  const v1::Migrate& migrate = message.migrate();
  v1::ControlResponse response;
  if (migrate.has_leave()) {
    response.mutable_left()->set_sequence(message.sequence());
    if (migrate.leave().ticket().size() != 16) Violation("a short ticket");
    if (refuse_to_let_ > 0) {
      --refuse_to_let_;
      FillDetail(MakeError(absl::StatusCode::kUnavailable, "OFFERS_PENDING",
                           "others come first"),
                 response.mutable_left()->mutable_refused());
    } else {
      left_ = true;
      ticket_ = migrate.leave().ticket();
      response.mutable_left()->set_state_bytes(100);
      *response.mutable_left()->mutable_use() = UseSoFar();
    }
    Respond(std::move(response));
    return true;
  }
  if (migrate.has_stay()) {
    if (!std::exchange(left_, false)) Violation("stays, and did not leave");
    return true;
  }
  if (message.sequence() != 1 || other_ == nullptr) {
    Violation("enters in the middle");
    return true;
  }
  entering_ = true;
  changed_.SignalAll();
  if (entries_ == Entries::kIgnore) return false;
  v1::Entered* const entered = response.mutable_entered();
  entered->set_sequence(1);
  if (entries_ == Entries::kRefuse) {
    FillDetail(MakeError(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                         "no room"),
               entered->mutable_refused());
  } else {
    // Never the other way round at the same time.
    MutexLock lock(&other_->mu_);
    if (!other_->left_ || migrate.enter().state().ticket() != other_->ticket_ ||
        migrate.enter().state().worker_id() != other_->id_ ||
        migrate.enter().state().size_bytes() != 100) {
      Violation("enters from where nobody left");
    }
    storages_ = other_->storages_;
    ever_born_ = other_->ever_born_;
    models_ = other_->models_;
    entered->set_storage_count(storages_.size());
    entered->set_moved_bytes(100);
  }
  Respond(std::move(response));
  return true;
}

bool FakeWorker::Carry(const v1::Ordered& message) {
  if (left_ && !message.migrate().has_stay()) {
    Violation("a message of a session that left");
  }
  switch (message.action_case()) {
    case v1::Ordered::kDefineStructure:
      CarryDefine(message.define_structure());
      return true;
    case v1::Ordered::kRun:
      return CarryRun(message);
    case v1::Ordered::kInstall:
      return CarryInstall(message);
    case v1::Ordered::kCreateStorage: {
      const v1::CreateStorage& create = message.create_storage();
      Written(create.storage(), create.base_version())
          .bytes.resize(create.size_bytes());
      return true;
    }
    case v1::Ordered::kRead:
      CarryRead(message);
      return true;
    case v1::Ordered::kFree:
      for (const uint64_t id : message.free().storages()) {
        if (storages_.erase(id) == 0) {
          Violation(absl::StrCat("free of unknown storage ", id));
        }
      }
      return true;
    case v1::Ordered::kOffer: {
      const v1::Offer& offer = message.offer();
      const auto found = storages_.find(offer.storage());
      if (found == storages_.end() ||
          found->second.version != offer.version() ||
          offer.ticket().size() != 16) {
        Violation(absl::StrCat("offer of storage ", offer.storage(),
                               " at version ", offer.version()));
      }
      return true;
    }
    case v1::Ordered::kProfile:
      CarryProfile(message);
      return true;
    case v1::Ordered::kMigrate:
      return CarryMigrate(message);
    case v1::Ordered::kMeter: {
      if (!takes_meters_) Violation("meter");
      v1::ControlResponse response;
      response.mutable_metered()->set_sequence(message.sequence());
      *response.mutable_metered()->mutable_use() = UseSoFar();
      Respond(std::move(response));
      return true;
    }
    case v1::Ordered::kRegisterModel:
      CarryModel(message);
      return true;
    case v1::Ordered::ACTION_NOT_SET:
      Violation("ordered message without action");
  }
  return true;
}

void FakeWorker::CarryDefine(const v1::DefineStructure& define) {
  for (const uint64_t id : define.forget_ids()) {
    if (defined_.erase(id) == 0) {
      Violation(absl::StrCat("forgets structure ", id));
    }
    evicted_.erase(id);
  }
  if (define.structure_id() <= last_structure_) Violation("structure id again");
  last_structure_ = define.structure_id();
  absl::StatusOr<srg::Structure> structure = srg::FromProto(define.structure());
  if (!structure.ok()) {
    Violation(structure.status().ToString());
    return;
  }
  absl::StatusOr<srg::StructureFacts> facts = srg::Validate(*structure, {});
  if (!facts.ok()) {
    Violation(facts.status().ToString());
    return;
  }
  std::string fingerprint = srg::Fingerprint(*structure);
  defined_[define.structure_id()] = {*std::move(structure), *std::move(facts),
                                     std::move(fingerprint)};
  if (defined_.size() > limits_.max_structures()) {
    Violation("too many structures");
  }
  v1::ControlResponse response;
  response.mutable_admitted()->set_structure_id(define.structure_id());
  response.mutable_admitted()->set_cache_hit(true);
  response.mutable_admitted()->set_fingerprint(
      wrong_fingerprints_ ? std::string(32, 'x')
                          : defined_[define.structure_id()].fingerprint);
  Respond(std::move(response));
}

bool FakeWorker::Expand(v1::Run* run, Defined* defined) {
  const srg::Structure& structure = defined->structure;
  if (run->has_repeat()) {
    if (defined->last_storages.size() != structure.slots.size()) {
      Violation("a repeat of nothing remembered");
      return false;
    }
    v1::Run whole = *run;
    const v1::Repeat& repeat = run->repeat();
    if (run->bindings_size() > 0) Violation("bindings of a repeat");
    uint64_t next = repeat.first_new_storage();
    uint64_t versions = 0;
    int listed = 0;
    uint64_t listed_storage = 0;
    // Slots and holes until the next that is listed.
    uint32_t gap = 0;
    for (uint32_t i = 0; i < structure.slots.size(); ++i) {
      v1::Binding& binding = *whole.add_bindings();
      const srg::Slot::Kind kind = structure.slots[i].kind;
      if (listed < repeat.slot_gaps_size() &&
          repeat.slot_gaps(listed) == gap++) {
        listed_storage += static_cast<uint64_t>(repeat.storages(listed));
        binding.set_storage(listed_storage);
        binding.set_base_version(
            repeat.base_versions_size() > 0 ? repeat.base_versions(listed) : 1);
        ++listed;
        gap = 0;
      } else if (kind == srg::Slot::Kind::kCreated ||
                 kind == srg::Slot::Kind::kResult) {
        binding.set_storage(next++);
      } else {
        binding.set_storage(defined->last_storages[i]);
        binding.set_base_version(storages_[binding.storage()].version);
        versions += binding.base_version();
      }
      binding.set_writes(defined->facts.slots[i].writes);
      binding.set_reads(defined->facts.slots[i].reads);
    }
    if (listed != repeat.storages_size()) Violation("slots of a repeat");
    if (versions != repeat.version_sum()) Violation("versions of a repeat");
    if (repeat.same_final_slots()) {
      whole.mutable_final_slots()->Add(defined->last_final_slots.begin(),
                                       defined->last_final_slots.end());
    }
    whole.mutable_float_holes()->Assign(defined->last_floats.begin(),
                                        defined->last_floats.end());
    int changed = 0;
    uint32_t hole = 0;
    for (const uint32_t holes_between : repeat.float_gaps()) {
      hole += holes_between;
      if (hole >= defined->last_floats.size()) {
        Violation("float holes of a repeat");
        return false;
      }
      whole.set_float_holes(static_cast<int>(hole++),
                            run->float_holes(changed++));
    }
    *run = std::move(whole);
  }
  defined->last_storages.clear();
  if (!run->remember() && !run->has_repeat()) return true;
  for (const v1::Binding& binding : run->bindings()) {
    defined->last_storages.push_back(binding.storage());
  }
  defined->last_floats.assign(run->float_holes().begin(),
                              run->float_holes().end());
  defined->last_final_slots.assign(run->final_slots().begin(),
                                   run->final_slots().end());
  return true;
}

bool FakeWorker::CarryRun(const v1::Ordered& message) {
  v1::Run run = message.run();
  const auto found = defined_.find(run.structure_id());
  if (found == defined_.end()) {
    Violation(absl::StrCat("run of undefined structure ", run.structure_id()));
    return true;
  }
  if (evicted_.count(run.structure_id()) > 0) {
    if (needed_ == run.structure_id()) return false;
    needed_ = run.structure_id();
    v1::ControlResponse response;
    response.mutable_need()->set_structure_id(needed_);
    Respond(std::move(response));
    return false;
  }
  Defined& defined = found->second;
  if (!Expand(&run, &defined)) return true;
  const absl::StatusOr<srg::Structure> structure =
      srg::AtSize(defined.structure, run.size());
  const absl::StatusOr<srg::StructureFacts> facts =
      structure.ok() ? srg::Validate(*structure, {}) : structure.status();
  if (!facts.ok() || (run.size() != 0 && defined.structure.size_hole.empty())) {
    Violation(absl::StrCat("no structure at size ", run.size()));
    return true;
  }
  carried_runs_.push_back(run);
  ++session_runs_;
  run_fingerprints_.push_back(defined.fingerprint);
  run_node_counts_.push_back(defined.structure.nodes.size());
  const size_t slots = structure->slots.size();
  if (static_cast<size_t>(run.bindings_size()) != slots) {
    Violation("wrong number of bindings");
    return true;
  }
  if (static_cast<uint32_t>(run.float_holes_size()) !=
          structure->float_hole_count ||
      static_cast<uint32_t>(run.scalar_tensors_size()) !=
          structure->scalar_tensor_hole_count ||
      run.reply_metadata() != (facts->unknown_results > 0)) {
    Violation("wrong holes");
  }
  uint64_t poison = std::exchange(fail_next_run_, 0);
  if (poison != 0) {
    v1::ControlResponse response;
    *response.mutable_poisoned() = Detail(poison);
    response.mutable_poisoned()->set_sequence(message.sequence());
    response.mutable_poisoned()->set_node(0);
    Respond(std::move(response));
  }
  std::set<uint64_t> bound;
  for (size_t i = 0; i < slots; ++i) {
    const v1::Binding& binding = run.bindings(static_cast<int>(i));
    const srg::Slot& slot = structure->slots[i];
    const srg::SlotFacts& slot_facts = facts->slots[i];
    const bool born_here = slot.kind == srg::Slot::Kind::kCreated ||
                           slot.kind == srg::Slot::Kind::kResult;
    if (!bound.insert(binding.storage()).second) Violation("bound twice");
    if (binding.writes() != slot_facts.writes ||
        binding.reads() != slot_facts.reads) {
      Violation(absl::StrCat("slot ", i, ": writes ", binding.writes(),
                             " reads ", binding.reads(), " instead of ",
                             slot_facts.writes, ", ", slot_facts.reads));
    }
    if (born_here != (binding.base_version() == 0)) {
      Violation(absl::StrCat("slot ", i, ": wrong birth"));
    }
    Storage& storage = Written(binding.storage(), binding.base_version());
    storage.version = binding.base_version() + binding.writes();
    if (born_here) {
      storage.bytes.assign(slot.kind == srg::Slot::Kind::kCreated
                               ? slot.created_bytes
                               : slot_facts.required_bytes,
                           '\0');
    } else if (slot.kind == srg::Slot::Kind::kBound &&
               storage.bytes.size() < slot_facts.required_bytes) {
      Violation(absl::StrCat("slot ", i, ": storage too small"));
    }
    if (slot_facts.reads && storage.poison != 0) poison = storage.poison;
  }
  for (int i = 0; i < run.bindings_size(); ++i) {
    const v1::Binding& binding = run.bindings(i);
    if (binding.writes() == 0) continue;
    Storage& storage = storages_[binding.storage()];
    storage.poison = poison;
    // Something to see: which message wrote last.
    std::fill(storage.bytes.begin(), storage.bytes.end(),
              static_cast<char>(message.sequence()));
  }
  for (int i = 1; i < run.final_slots_size(); ++i) {
    if (run.final_slots(i) <= run.final_slots(i - 1)) Violation("final order");
  }
  for (const uint32_t slot : run.final_slots()) {
    storages_.erase(run.bindings(static_cast<int>(slot)).storage());
  }
  if (run.reply_metadata()) {
    v1::ControlResponse response;
    *response.mutable_metadata() = metadata_;
    response.mutable_metadata()->set_sequence(message.sequence());
    if (poison != 0) {
      *response.mutable_metadata()->mutable_error() = Detail(poison);
    }
    Respond(std::move(response));
  }
  return true;
}

bool FakeWorker::CarryInstall(const v1::Ordered& message) {
  const v1::Install& install = message.install();
  if (!install.has_transfer()) {
    Storage& storage = Written(install.storage(), install.base_version());
    storage.poison = 0;
    if (install.has_inline_value()) storage.bytes = install.inline_value();
    // Nobody fetches anything here.
    if (install.has_pull()) {
      storage.bytes.assign(install.pull().size_bytes(), 'p');
      storage.poison = std::exchange(fail_next_pull_, 0);
      if (storage.poison != 0) {
        v1::ControlResponse response;
        *response.mutable_poisoned() = Detail(storage.poison);
        response.mutable_poisoned()->set_sequence(message.sequence());
        Respond(std::move(response));
      }
    }
    if (install.inline_value().size() > limits_.inline_bytes()) {
      Violation("inline value too large");
    }
    return true;
  }
  const v1::Transfer& transfer = install.transfer();
  if (receiving_ == 0) {
    v1::ControlResponse response;
    response.mutable_transfer()->set_transfer_id(transfer.transfer_id());
    if (ask_for_proofs_ && proving_ != transfer.transfer_id()) {
      if (!transfer.provable()) Violation("a transfer that cannot be proved");
      proving_ = transfer.transfer_id();
      proof_.clear();
      response.mutable_transfer()->mutable_prove()->set_key(kProofKey);
      Respond(std::move(response));
      return false;
    }
    if (ask_for_proofs_ && proof_.empty()) return false;
    uint64_t used = 0;
    for (const auto& [id, storage] : storages_) used += storage.bytes.size();
    const bool refuse = transfers_ == Transfers::kRefuse ||
                        used + transfer.size_bytes() > limits_.memory_bytes();
    if (refuse) {
      FillDetail(
          LimitExceeded("MEMORY_LIMIT", "session memory",
                        limits_.memory_bytes(), used, transfer.size_bytes()),
          response.mutable_transfer()->mutable_refused());
      response.mutable_transfer()->mutable_refused()->set_error_id(4711);
    } else if (transfers_ == Transfers::kHeld) {
      response.mutable_transfer()->set_already_held(true);
    } else {
      response.mutable_transfer()->set_send(true);
    }
    const bool wait = response.transfer().has_send();
    if (wait) {
      receiving_ = transfer.transfer_id();
      received_bulk_.assign(transfer.size_bytes(), '\0');
      received_chunks_.clear();
    } else {
      Storage& storage = Written(install.storage(), install.base_version());
      if (!refuse) storage.bytes.resize(transfer.size_bytes());
    }
    Respond(std::move(response));
    return !wait;
  }
  if (received_chunks_.size() * kBulkChunkBytes < transfer.size_bytes()) {
    return false;
  }
  const ContentHash hash =
      HashContent(received_bulk_.data(), received_bulk_.size());
  if (hash.high != transfer.hash_high() || hash.low != transfer.hash_low()) {
    Violation("wrong content hash");
  }
  if (ask_for_proofs_ && proof_ != ProveContent(kProofKey, received_bulk_)) {
    Violation("wrong proof");
  }
  Storage& storage = Written(install.storage(), install.base_version());
  storage.poison = 0;
  storage.bytes = std::move(received_bulk_);
  receiving_ = 0;
  return true;
}

v1::MeteredUse FakeWorker::UseSoFar() const {
  v1::MeteredUse use;
  use.set_device_nanoseconds(session_runs_ * 1'000'000);
  use.set_received_bytes(session_runs_ * 100);
  use.set_sent_bytes(session_runs_ * 10);
  use.set_runs(session_runs_);
  return use;
}

void FakeWorker::CarryModel(const v1::Ordered& message) {
  const v1::RegisterModel& model = message.register_model();
  if (!takes_models_ || model.model_id() == 0 || model.name().size() > 256) {
    Violation("model");
  }
  if (model.storages().empty()) {
    models_.erase(model.model_id());
    return;
  }
  v1::ControlResponse response;
  v1::ModelRegistered* const registered = response.mutable_model_registered();
  registered->set_sequence(message.sequence());
  std::set<uint64_t> ids;
  uint64_t bytes = 0;
  for (const uint64_t id : model.storages()) {
    if (storages_.count(id) == 0 || !ids.insert(id).second) {
      Violation(absl::StrCat("model with storage ", id));
      continue;
    }
    bytes += storages_.at(id).bytes.size();
  }
  registered->set_size_bytes(bytes);
  if (bytes > model_bytes_) {
    FillDetail(LimitExceeded("MODEL_BYTES", "a model", model_bytes_, 0, bytes),
               registered->mutable_refused());
  } else {
    models_[model.model_id()] = model;
  }
  Respond(std::move(response));
}

void FakeWorker::CarryProfile(const v1::Ordered& message) {
  const v1::ProfileAction action = message.profile().action();
  const bool starts = action == v1::PROFILE_ACTION_START;
  if (!takes_profiles_ || starts == profiling_) Violation("profile");
  profiling_ = action != v1::PROFILE_ACTION_STOP;
  v1::ControlResponse response;
  if (!starts) *response.mutable_profile() = report_;
  response.mutable_profile()->set_sequence(message.sequence());
  Respond(std::move(response));
}

void FakeWorker::CarryRead(const v1::Ordered& message) {
  const v1::Read& read = message.read();
  v1::ControlResponse response;
  if (profiling_) *response.mutable_timing() = timing_;
  v1::ReadReply* const reply = response.mutable_read();
  reply->set_sequence(message.sequence());
  const auto found = storages_.find(read.storage());
  absl::StatusOr<srg::TensorView> view = srg::FromProto(read.view());
  if (found == storages_.end() || found->second.version != read.version() ||
      !view.ok()) {
    Violation(absl::StrCat("read of storage ", read.storage(), " version ",
                           read.version()));
    *reply->mutable_error() = Detail(1);
  } else if (found->second.poison != 0) {
    *reply->mutable_error() = Detail(found->second.poison);
  } else {
    std::string value;
    Gather(found->second.bytes, *view, 0, view->storage_offset, &value);
    if ((read.transfer_id() != 0) != (value.size() > limits_.inline_bytes())) {
      Violation("wrong way for a read");
    }
    if (read.transfer_id() != 0) {
      reply->set_bulk_bytes(value.size());
      Respond(std::move(response), read.transfer_id(),
              std::make_shared<std::string>(std::move(value)));
      return;
    } else {
      reply->set_value(std::move(value));
    }
  }
  Respond(std::move(response));
}

FakeWorker::Storage& FakeWorker::Written(uint64_t id, uint64_t base_version) {
  if (base_version == 0 && !ever_born_.insert(id).second) {
    Violation(absl::StrCat("storage ", id, " is born twice"));
  }
  if (base_version != 0 && storages_.count(id) == 0) {
    Violation(absl::StrCat("storage ", id, " does not exist"));
  }
  Storage& storage = storages_[id];
  if (storage.version != base_version) {
    Violation(absl::StrCat("storage ", id, " has version ", storage.version,
                           ", not ", base_version));
  }
  storage.version = base_version + 1;
  return storage;
}

void FakeWorker::Violation(std::string what) {
  violations_.push_back(std::move(what));
}

void FakeWorker::Respond(v1::ControlResponse response, uint64_t transfer_id,
                         std::shared_ptr<const std::string> value) {
  response.set_completed_sequence(completed_);
  Reply reply{std::move(response), transfer_id, std::move(value)};
  if (reply.response.has_read() || reply.response.has_metadata() ||
      reply.response.has_transfer() || reply.response.has_poisoned() ||
      reply.response.has_admitted() || reply.response.has_profile() ||
      reply.response.has_left() || reply.response.has_entered() ||
      reply.response.has_metered() || reply.response.has_model_registered()) {
    reply.response.set_reply_number(++last_reply_);
    replies_.push_back(reply);
  }
  SendReply(reply);
}

void FakeWorker::SendReply(const Reply& reply) {
  auto response = std::make_shared<v1::ControlResponse>(reply.response);
  const uint64_t messages = done_ + limits_.max_outstanding();
  if (messages > link_->said_messages) {
    link_->said_messages = messages;
    response->mutable_window()->set_messages(messages);
    response->mutable_window()->set_bytes(done_bytes_ +
                                          limits_.max_outstanding_bytes());
  }
  Pass([&](WorkerStream* stream) { stream->Send(response); });
  if (reply.value == nullptr) return;
  // The last chunk first: they come in any order.
  const absl::string_view bytes = *reply.value;
  const uint64_t last = (bytes.size() - 1) / kBulkChunkBytes * kBulkChunkBytes;
  for (uint64_t offset = last;; offset -= kBulkChunkBytes) {
    Pass([&](WorkerStream* stream) {
      stream->SendBulk(reply.transfer_id, offset,
                       {bytes.substr(offset, kBulkChunkBytes), reply.value});
    });
    if (offset == 0) break;
  }
}

v1::ErrorDetail FakeWorker::Detail(uint64_t error_id) {
  v1::ErrorDetail detail;
  detail.set_error_id(error_id);
  detail.set_code(3);
  detail.set_reason("OPERATOR_FAILED");
  detail.set_message("it did not work");
  detail.set_operator_name("test::op");
  detail.set_worker_id("w0");
  detail.set_tenant("tenant");
  return detail;
}

}  // namespace djinn
