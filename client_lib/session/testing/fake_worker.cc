#include "client_lib/session/testing/fake_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/hash.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"

namespace djinn {
namespace {

// The view's elements in order, from its first dimension on.
void Gather(const std::string& bytes, const srg::TensorView& view,
            size_t dimension, int64_t element, std::string* out) {
  if (dimension == view.sizes.size()) {
    const int64_t size = srg::ElementSize(view.data_type);
    out->append(bytes, element * size, size);
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

FakeWorker::~FakeWorker() { stream_.reset(); }

void FakeWorker::Serve(std::unique_ptr<WorkerStream> stream) {
  stream_ = std::move(stream);
  stream_->Start(this);
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

void FakeWorker::AnswerTransfers(Transfers answer) {
  MutexLock lock(&mu_);
  transfers_ = answer;
}

void FakeWorker::FailNextRun(uint64_t error_id) {
  MutexLock lock(&mu_);
  fail_next_run_ = error_id;
}

void FakeWorker::AnswerMetadata(v1::RunMetadata metadata) {
  MutexLock lock(&mu_);
  metadata_ = std::move(metadata);
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
  stream_->Close(std::move(status));
}

std::vector<v1::Ordered> FakeWorker::received() const {
  MutexLock lock(&mu_);
  return received_;
}

void FakeWorker::WaitReceived(size_t count) {
  MutexLock lock(&mu_);
  while (received_.size() < count) changed_.Wait(&mu_);
}

std::vector<v1::Run> FakeWorker::runs() const {
  std::vector<v1::Run> runs;
  for (const v1::Ordered& message : received()) {
    if (message.has_run()) runs.push_back(message.run());
  }
  return runs;
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

void FakeWorker::OnMessage(v1::ControlRequest message) {
  MutexLock lock(&mu_);
  if (message.has_hello()) {
    if (hello_seen_) Violation("second hello");
    if (message.hello().lease_token() != "token" ||
        message.hello().session_id() != "session" ||
        message.hello().worker_incarnation() != kIncarnation) {
      Violation("wrong hello");
    }
    hello_seen_ = true;
    changed_.SignalAll();
    if (silent_) return;
    v1::ControlResponse response;
    v1::WorkerHello* const hello = response.mutable_hello();
    hello->set_protocol_version(1);
    hello->set_worker_id(wrong_id_ ? "other" : id_);
    hello->set_incarnation(kIncarnation);
    *hello->mutable_limits() = limits_;
    Respond(std::move(response));
    return;
  }
  if (!hello_seen_) Violation("no hello");
  if (message.ordered().sequence() != ++last_sequence_) {
    Violation(absl::StrCat("sequence ", message.ordered().sequence(),
                           " instead of ", last_sequence_));
  }
  const uint64_t bytes = message.ByteSizeLong();
  waiting_bytes_ += bytes;
  waiting_.push_back(std::move(*message.mutable_ordered()));
  if (waiting_.size() > limits_.max_outstanding() ||
      (waiting_.size() > 1 &&
       waiting_bytes_ > limits_.max_outstanding_bytes())) {
    Violation("window exceeded");
  }
  Work();
}

void FakeWorker::OnBulk(uint64_t transfer_id, uint64_t offset,
                        absl::Span<const absl::string_view> pieces) {
  MutexLock lock(&mu_);
  while (hold_bulk_) changed_.Wait(&mu_);
  if (bulk_delay_ > absl::ZeroDuration()) absl::SleepFor(bulk_delay_);
  if (transfer_id != receiving_ || offset != received_bulk_.size()) {
    Violation(absl::StrCat("bulk for ", transfer_id, " at ", offset));
    return;
  }
  for (const absl::string_view piece : pieces) {
    received_bulk_.append(piece.data(), piece.size());
  }
  Work();
}

void FakeWorker::OnClosed(absl::Status status) {
  MutexLock lock(&mu_);
  closed_ = true;
  close_status_ = std::move(status);
  changed_.SignalAll();
}

void FakeWorker::Work() {
  while (!paused_ && !waiting_.empty()) {
    if (!Carry(waiting_.front())) return;
    v1::ControlRequest whole;
    *whole.mutable_ordered() = waiting_.front();
    waiting_bytes_ -= std::min<uint64_t>(waiting_bytes_, whole.ByteSizeLong());
    completed_ = waiting_.front().sequence();
    received_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    changed_.SignalAll();
    Respond({});
  }
}

bool FakeWorker::Carry(const v1::Ordered& message) {
  switch (message.action_case()) {
    case v1::Ordered::kDefineStructure: {
      const v1::DefineStructure& define = message.define_structure();
      absl::StatusOr<srg::Structure> structure =
          srg::FromProto(define.structure());
      if (!structure.ok()) {
        Violation(structure.status().ToString());
        return true;
      }
      absl::StatusOr<srg::StructureFacts> facts = srg::Validate(*structure, {});
      if (!facts.ok()) {
        Violation(facts.status().ToString());
        return true;
      }
      std::string fingerprint = srg::Fingerprint(*structure);
      defined_[define.structure_id()] = {
          *std::move(structure), *std::move(facts), std::move(fingerprint)};
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
      return true;
    }
    case v1::Ordered::kRun:
      CarryRun(message);
      return true;
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
    case v1::Ordered::ACTION_NOT_SET:
      Violation("ordered message without action");
  }
  return true;
}

void FakeWorker::CarryRun(const v1::Ordered& message) {
  const v1::Run& run = message.run();
  const auto found = defined_.find(run.structure_id());
  if (found == defined_.end()) {
    Violation(absl::StrCat("run of undefined structure ", run.structure_id()));
    return;
  }
  const Defined& defined = found->second;
  run_fingerprints_.push_back(defined.fingerprint);
  run_node_counts_.push_back(defined.structure.nodes.size());
  const size_t slots = defined.structure.slots.size();
  if (static_cast<size_t>(run.bindings_size()) != slots) {
    Violation("wrong number of bindings");
    return;
  }
  if (static_cast<uint32_t>(run.float_holes_size()) !=
          defined.structure.float_hole_count ||
      static_cast<uint32_t>(run.scalar_tensors_size()) !=
          defined.structure.scalar_tensor_hole_count ||
      run.reply_metadata() != (defined.facts.unknown_results > 0)) {
    Violation("wrong holes");
  }
  uint64_t poison = std::exchange(fail_next_run_, 0);
  if (poison != 0) {
    v1::ControlResponse response;
    *response.mutable_poisoned() = Detail(poison);
    Respond(std::move(response));
  }
  std::set<uint64_t> bound;
  for (size_t i = 0; i < slots; ++i) {
    const v1::Binding& binding = run.bindings(static_cast<int>(i));
    const srg::Slot& slot = defined.structure.slots[i];
    const srg::SlotFacts& facts = defined.facts.slots[i];
    const bool born_here = slot.kind == srg::Slot::Kind::kCreated ||
                           slot.kind == srg::Slot::Kind::kResult;
    if (!bound.insert(binding.storage()).second) Violation("bound twice");
    if (binding.writes() != facts.writes || binding.reads() != facts.reads) {
      Violation(absl::StrCat("slot ", i, ": writes ", binding.writes(),
                             " reads ", binding.reads(), " instead of ",
                             facts.writes, ", ", facts.reads));
    }
    if (born_here != (binding.base_version() == 0)) {
      Violation(absl::StrCat("slot ", i, ": wrong birth"));
    }
    Storage& storage = Written(binding.storage(), binding.base_version());
    storage.version = binding.base_version() + binding.writes();
    if (born_here) {
      storage.bytes.assign(slot.kind == srg::Slot::Kind::kCreated
                               ? slot.created_bytes
                               : facts.required_bytes,
                           '\0');
    } else if (slot.kind == srg::Slot::Kind::kBound &&
               storage.bytes.size() < facts.required_bytes) {
      Violation(absl::StrCat("slot ", i, ": storage too small"));
    }
    if (facts.reads && storage.poison != 0) poison = storage.poison;
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
}

bool FakeWorker::CarryInstall(const v1::Ordered& message) {
  const v1::Install& install = message.install();
  if (!install.has_transfer()) {
    Storage& storage = Written(install.storage(), install.base_version());
    storage.poison = 0;
    if (install.has_inline_value()) storage.bytes = install.inline_value();
    if (install.inline_value().size() > limits_.inline_bytes()) {
      Violation("inline value too large");
    }
    return true;
  }
  const v1::Transfer& transfer = install.transfer();
  if (receiving_ == 0) {
    v1::ControlResponse response;
    response.mutable_transfer()->set_transfer_id(transfer.transfer_id());
    if (transfers_ == Transfers::kRefuse) {
      v1::ErrorDetail* const detail =
          response.mutable_transfer()->mutable_refused();
      *detail = Detail(4711);
      detail->set_code(8);
      detail->set_reason("MEMORY_LIMIT");
      detail->set_message("session memory: limit 1, used 0, asked 2");
    } else if (transfers_ == Transfers::kHeld) {
      response.mutable_transfer()->set_already_held(true);
    } else {
      response.mutable_transfer()->set_send(true);
    }
    const bool wait = response.transfer().has_send();
    if (wait) {
      receiving_ = transfer.transfer_id();
      received_bulk_.clear();
    } else {
      Written(install.storage(), install.base_version())
          .bytes.resize(transfer.size_bytes());
    }
    Respond(std::move(response));
    return !wait;
  }
  if (received_bulk_.size() < transfer.size_bytes()) return false;
  const ContentHash hash =
      HashContent(received_bulk_.data(), received_bulk_.size());
  if (hash.high != transfer.hash_high() || hash.low != transfer.hash_low()) {
    Violation("wrong content hash");
  }
  Storage& storage = Written(install.storage(), install.base_version());
  storage.poison = 0;
  storage.bytes = std::move(received_bulk_);
  receiving_ = 0;
  return true;
}

void FakeWorker::CarryRead(const v1::Ordered& message) {
  const v1::Read& read = message.read();
  v1::ControlResponse response;
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
      auto owner = std::make_shared<std::string>(std::move(value));
      for (size_t offset = 0; offset < owner->size();
           offset += kBulkChunkBytes) {
        stream_->SendBulk(
            read.transfer_id(), offset,
            {absl::string_view(*owner).substr(offset, kBulkChunkBytes), owner});
      }
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

void FakeWorker::Respond(v1::ControlResponse response) {
  response.set_completed_sequence(completed_);
  stream_->Send(std::make_shared<v1::ControlResponse>(std::move(response)));
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
