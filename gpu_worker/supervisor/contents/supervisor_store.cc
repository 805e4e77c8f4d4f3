#include "gpu_worker/supervisor/contents/supervisor_store.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/base/proto_duration.h"
#include "common/log/log.h"
#include "gpu_worker/supervisor/contents/content_service.h"
#include "gpu_worker/supervisor/contents/packets.h"

namespace djinn::worker {
namespace {

// The time within which the supervisor has written a content, other tenants'
// before it included. The store ends when it has passed.
constexpr absl::Duration kWriteTimeout = absl::Minutes(10);

}  // namespace

// State that the threads of a store and its users share.
struct SupervisorStore::Outbox {
  // Queues a request, which gets the next id if it has none. Returns the id.
  uint64_t Put(v1::ContentRequest request) {
    MutexLock lock(&mu);
    return PutLocked(std::move(request));
  }
  uint64_t PutLocked(v1::ContentRequest request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (request.id() == 0) request.set_id(++last_id);
    const uint64_t id = request.id();
    if (!ended) requests.push_back(std::move(request));
    changed.SignalAll();
    return id;
  }

  Mutex mu;
  CondVar changed;
  bool ended ABSL_GUARDED_BY(mu) = false;
  uint64_t last_id ABSL_GUARDED_BY(mu) = 0;
  // A look adds one request, and two more at most until it is answered; a loan
  // adds one.
  std::deque<v1::ContentRequest> requests ABSL_GUARDED_BY(mu);
  // Looks that are not answered, those given up included.
  std::map<uint64_t, std::weak_ptr<Look>> looks ABSL_GUARDED_BY(mu);
  // Sorted by `due`.
  std::deque<Waiting> waiting ABSL_GUARDED_BY(mu);
  absl::flat_hash_set<Name> names ABSL_GUARDED_BY(mu);
  // The answer to the offer, or to the content that was sent.
  std::optional<v1::ContentAnswer> answer ABSL_GUARDED_BY(mu);
};

// A mapping of a content that the supervisor lent.
class SupervisorStore::Loan {
 public:
  Loan(std::shared_ptr<Outbox> outbox, uint64_t number)
      : outbox_(std::move(outbox)), number_(number) {}
  ~Loan() {
    if (memory_ != MAP_FAILED) munmap(memory_, bytes_);
    v1::ContentRequest request;
    request.set_give_back(number_);
    outbox_->Put(std::move(request));
  }
  // Returns null when the system refuses.
  void* Map(int fd, uint64_t bytes) {
    bytes_ = bytes;
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    return memory_ == MAP_FAILED ? nullptr : memory_;
  }

 private:
  const std::shared_ptr<Outbox> outbox_;
  const uint64_t number_;
  void* memory_ = MAP_FAILED;
  uint64_t bytes_ = 0;
};

// One look, and the challenge in which it may end.
class SupervisorStore::Look final : public ContentLoad,
                                    public std::enable_shared_from_this<Look> {
 public:
  Look(ContentRequest request, std::shared_ptr<Outbox> outbox)
      : request_(std::move(request)),
        outbox_(std::move(outbox)),
        as_challenge_(this) {}
  ~Look() override {
    MutexLock lock(&mu_);
    if (phase_ == Phase::kLooking || phase_ == Phase::kProving) TellGivenUp();
  }
  void set_id(uint64_t id) { id_ = id; }
  // Ends the look if its request was not sent.
  void Forget() {
    MutexLock lock(&mu_);
    phase_ = Phase::kOver;
  }
  const ContentRequest& request() const { return request_; }

  bool settled() const override {
    MutexLock lock(&mu_);
    return phase_ != Phase::kLooking;
  }
  bool ok() const override {
    MutexLock lock(&mu_);
    return phase_ == Phase::kFound && !asked_;
  }
  void GiveUp() override {
    {
      MutexLock lock(&mu_);
      if (phase_ != Phase::kLooking) return;
      phase_ = Phase::kOver;
      TellGivenUp();
    }
    request_.settled();
  }
  std::shared_ptr<Buffer> Take() override {
    MutexLock lock(&mu_);
    return std::exchange(held_, nullptr);
  }
  std::shared_ptr<ContentChallenge> challenge() override {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kProving) return nullptr;
    return std::shared_ptr<ContentChallenge>(shared_from_this(),
                                             &as_challenge_);
  }

  // The reader's part. Asks for a proof under the key.
  void Ask(std::string key) {
    {
      MutexLock lock(&mu_);
      if (phase_ != Phase::kLooking) return;
      phase_ = Phase::kProving;
      asked_ = true;
      key_ = std::move(key);
    }
    request_.settled();
  }
  // Ends the look with what was found; null: nothing.
  void End(std::shared_ptr<Buffer> held, absl::Duration proof) {
    if (proof > absl::ZeroDuration() && request_.charge != nullptr) {
      request_.charge(proof);
    }
    {
      MutexLock lock(&mu_);
      if (phase_ != Phase::kLooking && phase_ != Phase::kProving) return;
      phase_ = held != nullptr ? Phase::kFound : Phase::kOver;
      held_ = std::move(held);
    }
    request_.settled();
  }

 private:
  enum class Phase { kLooking, kProving, kFound, kOver };

  class AsChallenge final : public ContentChallenge {
   public:
    explicit AsChallenge(Look* look) : look_(*look) {}
    const std::string& key() const override { return look_.key_; }
    void Answer(std::string mac) override {
      MutexLock lock(&look_.mu_);
      if (look_.answered_ || look_.phase_ != Phase::kProving) return;
      look_.answered_ = true;
      v1::ContentRequest request;
      request.set_id(look_.id_);
      request.set_proof(std::move(mac));
      look_.outbox_->Put(std::move(request));
    }
    void Expire() override {
      {
        MutexLock lock(&look_.mu_);
        if (look_.phase_ != Phase::kProving) return;
        look_.phase_ = Phase::kOver;
        look_.TellGivenUp();
      }
      look_.request_.settled();
    }
    bool answered() const override {
      MutexLock lock(&look_.mu_);
      return look_.answered_;
    }
    bool settled() const override {
      MutexLock lock(&look_.mu_);
      return look_.phase_ == Phase::kFound || look_.phase_ == Phase::kOver;
    }
    std::shared_ptr<Buffer> Take() override {
      MutexLock lock(&look_.mu_);
      return std::exchange(look_.held_, nullptr);
    }

   private:
    Look& look_;
  };

  void TellGivenUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    v1::ContentRequest request;
    request.set_id(id_);
    request.set_give_up(true);
    outbox_->Put(std::move(request));
  }

  const ContentRequest request_;
  const std::shared_ptr<Outbox> outbox_;
  // Set before the request is sent.
  uint64_t id_ = 0;
  AsChallenge as_challenge_;
  mutable Mutex mu_;
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kLooking;
  bool asked_ ABSL_GUARDED_BY(mu_) = false;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  // Written once, before any other thread may read it.
  std::string key_;
  std::shared_ptr<Buffer> held_ ABSL_GUARDED_BY(mu_);
};

SupervisorStore::SupervisorStore(Descriptor socket, Options options,
                                 Clock* clock)
    : socket_(std::move(socket)),
      options_(std::move(options)),
      clock_(clock),
      outbox_(std::make_shared<Outbox>()) {
  const timeval patience = absl::ToTimeval(options_.answer_timeout);
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience,
             sizeof(patience));
}

SupervisorStore::~SupervisorStore() { Stop(); }

void SupervisorStore::Bind(Device* device, ContentCache* contents) {
  device_ = device;
  contents_ = contents;
}

void SupervisorStore::Start() {
  sender_ = std::thread([this] { RunSender(); });
  reader_ = std::thread([this] { RunReader(); });
}

void SupervisorStore::Stop() {
  End();
  // Wakes threads that wait for the supervisor.
  shutdown(socket_.get(), SHUT_RDWR);
  if (sender_.joinable()) sender_.join();
  if (reader_.joinable()) reader_.join();
}

void SupervisorStore::End() {
  std::vector<std::shared_ptr<Look>> looks;
  {
    MutexLock lock(&outbox_->mu);
    outbox_->ended = true;
    outbox_->requests.clear();
    for (const auto& [id, look] : outbox_->looks) {
      if (auto alive = look.lock()) looks.push_back(std::move(alive));
    }
    outbox_->looks.clear();
    outbox_->changed.SignalAll();
  }
  for (const std::shared_ptr<Look>& look : looks) {
    look->End(nullptr, absl::ZeroDuration());
  }
}

void SupervisorStore::Keep(const std::string& tenant, const ContentHash& hash,
                           uint64_t size_bytes, bool found) {
  MutexLock lock(&outbox_->mu);
  Outbox& outbox = *outbox_;
  if (outbox.ended) return;
  if (outbox.names.contains({hash, size_bytes})) {
    for (Waiting& waiting : outbox.waiting) {
      if (waiting.hash == hash && waiting.size_bytes == size_bytes) {
        waiting.found |= found;
      }
    }
    return;
  }
  if (outbox.waiting.size() >= options_.max_waiting) return;
  outbox.names.insert({hash, size_bytes});
  outbox.waiting.push_back({tenant, hash, size_bytes,
                            clock_->Monotonic() + options_.offer_after, found});
  outbox.changed.SignalAll();
}

std::shared_ptr<ContentLoad> SupervisorStore::Load(ContentRequest request) {
  v1::ContentRequest find;
  v1::ContentDescription* const name = find.mutable_find();
  name->set_hash_high(request.hash.high);
  name->set_hash_low(request.hash.low);
  name->set_size_bytes(request.buffer->size_bytes());
  name->set_provable(request.provable);
  auto look = std::make_shared<Look>(std::move(request), outbox_);
  bool sent = false;
  {
    MutexLock lock(&outbox_->mu);
    sent = !outbox_->ended && outbox_->looks.size() < ContentService::kMaxLooks;
    if (sent) {
      const uint64_t id = outbox_->PutLocked(std::move(find));
      look->set_id(id);
      outbox_->looks[id] = look;
    }
  }
  if (sent) return look;
  look->Forget();
  return nullptr;
}

bool SupervisorStore::Send(const v1::ContentRequest& request) {
  const absl::Status sent = SendPacket(socket_.get(), request);
  if (absl::IsUnavailable(sent)) {
    log::Error("contents are no longer kept: the supervisor does not read", {});
  }
  return sent.ok();
}

bool SupervisorStore::Flush() {
  for (;;) {
    v1::ContentRequest request;
    {
      MutexLock lock(&outbox_->mu);
      if (outbox_->ended) return false;
      if (outbox_->requests.empty()) return true;
      request = std::move(outbox_->requests.front());
      outbox_->requests.pop_front();
    }
    if (!Send(request)) return false;
  }
}

void SupervisorStore::RunSender() {
  while (Flush()) {
    std::optional<Waiting> due;
    {
      MutexLock lock(&outbox_->mu);
      Outbox& outbox = *outbox_;
      if (!outbox.requests.empty() || outbox.ended) continue;
      absl::Duration pause = absl::InfiniteDuration();
      if (!outbox.waiting.empty()) {
        pause = outbox.waiting.front().due - clock_->Monotonic();
      }
      if (pause > absl::ZeroDuration()) {
        clock_->Wait(&outbox.changed, &outbox.mu, pause);
        continue;
      }
      due = std::move(outbox.waiting.front());
      outbox.waiting.pop_front();
      outbox.names.erase({due->hash, due->size_bytes});
    }
    if (!OfferOne(*due)) break;
  }
  End();
}

bool SupervisorStore::OfferOne(const Waiting& waiting) {
  std::shared_ptr<Buffer> buffer =
      contents_->Peek(waiting.tenant, waiting.hash, waiting.size_bytes);
  // The cache has one reference and this function one: no storage uses the
  // content any more.
  if (buffer == nullptr || (!waiting.found && buffer.use_count() <= 2)) {
    return true;
  }
  v1::ContentRequest offer;
  offer.mutable_offer()->set_hash_high(waiting.hash.high);
  offer.mutable_offer()->set_hash_low(waiting.hash.low);
  offer.mutable_offer()->set_size_bytes(waiting.size_bytes);
  const uint64_t id = outbox_->Put(std::move(offer));
  v1::ContentAnswer answer;
  if (!AwaitAnswer(id, options_.answer_timeout, &answer)) return false;
  if (!answer.send()) return true;
  {
    absl::StatusOr<SharedBytes> bytes = device_->HostBytes(std::move(buffer));
    if (!bytes.ok()) {
      // The supervisor waits for the bytes, so the socket is of no use any
      // more.
      log::Error("a content is not kept", {{"error", bytes.status()}});
      return false;
    }
    if (!SendPieces(id, bytes->bytes)) return false;
  }
  // The bytes may be written to again.
  return AwaitAnswer(id, kWriteTimeout, &answer);
}

bool SupervisorStore::SendPieces(uint64_t id, absl::string_view bytes) {
  v1::ContentRequest request;
  request.set_id(id);
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kPieceBytes);
    request.set_piece(piece.data(), piece.size());
    bytes.remove_prefix(piece.size());
    // Looks do not wait for a content's last byte.
    if (!Flush() || !Send(request)) return false;
  }
  return true;
}

bool SupervisorStore::AwaitAnswer(uint64_t id, absl::Duration patience,
                                  v1::ContentAnswer* answer) {
  const absl::Duration deadline = clock_->Monotonic() + patience;
  while (Flush()) {
    const absl::Duration left = deadline - clock_->Monotonic();
    if (left <= absl::ZeroDuration()) {
      log::Error("contents are no longer kept: the supervisor does not answer",
                 {});
      return false;
    }
    MutexLock lock(&outbox_->mu);
    if (outbox_->answer.has_value() && outbox_->answer->id() == id) {
      *answer = *std::move(outbox_->answer);
      outbox_->answer.reset();
      return true;
    }
    if (outbox_->requests.empty() && !outbox_->ended) {
      clock_->Wait(&outbox_->changed, &outbox_->mu, left);
    }
  }
  return false;
}

void SupervisorStore::RunReader() {
  std::string room;
  for (;;) {
    v1::ContentAnswer answer;
    Descriptor descriptor;
    const absl::Status received =
        ReceivePacket(socket_.get(), &answer, &descriptor, &room);
    if (absl::IsUnavailable(received)) continue;
    if (!received.ok()) break;
    Deliver(answer, std::move(descriptor));
  }
  End();
}

void SupervisorStore::Deliver(const v1::ContentAnswer& answer,
                              Descriptor descriptor) {
  std::shared_ptr<Look> look;
  {
    MutexLock lock(&outbox_->mu);
    const auto found = outbox_->looks.find(answer.id());
    if (found == outbox_->looks.end()) {
      outbox_->answer = answer;
      outbox_->changed.SignalAll();
      return;
    }
    look = found->second.lock();
    if (!answer.has_prove()) outbox_->looks.erase(found);
  }
  if (answer.has_prove()) {
    if (look != nullptr) look->Ask(answer.prove());
    return;
  }
  const absl::Duration proof = FromProtoDuration(answer.proof_time());
  std::shared_ptr<Buffer> held;
  if (answer.has_lent()) {
    // Without a look, the loan goes back at once.
    auto loan = std::make_shared<Loan>(outbox_, answer.lent());
    if (look != nullptr) held = Map(descriptor, std::move(loan), *look);
  }
  if (look != nullptr) look->End(std::move(held), proof);
}

std::shared_ptr<Buffer> SupervisorStore::Map(const Descriptor& descriptor,
                                             std::shared_ptr<Loan> loan,
                                             const Look& look) {
  const std::shared_ptr<Buffer>& room = look.request().buffer;
  void* const memory = loan->Map(descriptor.get(), room->size_bytes());
  if (memory == nullptr) {
    log::Warning("a content is not mapped, and has to be sent again", {});
    return nullptr;
  }
  if (options_.wrap != nullptr) {
    return options_.wrap(memory, room->size_bytes(), std::move(loan));
  }
  const absl::Status written = device_->Write(
      room.get(), 0, {static_cast<const char*>(memory), room->size_bytes()});
  return written.ok() ? room : nullptr;
}

}  // namespace djinn::worker
